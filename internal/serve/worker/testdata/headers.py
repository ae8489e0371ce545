def init():
    pass


def run(data, request_headers):
    return [data, request_headers.get("X-Test"), type(request_headers).__name__]
