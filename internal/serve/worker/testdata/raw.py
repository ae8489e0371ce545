from azureml.contrib.services.aml_request import rawhttp
from azureml_inference_server_http.api.aml_response import AMLResponse


def init():
    pass


@rawhttp
def run(request):
    q = request.args.get("q")
    if q == "teapot":
        return AMLResponse({"m": "tea"}, 418, json_str=True)
    if q == "400":
        return AMLResponse("no", 400)
    if q == "500":
        return AMLResponse("bad", 500)
    if q == "503":
        return AMLResponse("busy", 503, {"Retry-After": "1", "X-A": "1, 2"})
    if q == "none":
        return None
    if q == "empty":
        return AMLResponse(None, 201)
    if q == "json":
        return {"sum": sum(request.get_json()["x"])}
    if q == "headers":
        return [request.headers.get("x-test"), request.headers.get("X-TEST"), request.method, request.path]
    if q == "list":
        return request.args.getlist("v")
    if q == "failed":
        return AMLResponse("x", 200, {}, False, True)
    if q == "raise":
        raise KeyError(q)
    return AMLResponse(request.get_data() or request.method.encode(), 200, {"Content-Type": "image/png"})
