"""A script with schemas of all kinds of parameters."""
import numpy as np
import pandas as pd
from inference_schema.parameter_types.numpy_parameter_type import NumpyParameterType
from inference_schema.parameter_types.pandas_parameter_type import PandasParameterType
from inference_schema.parameter_types.standard_py_parameter_type import StandardPythonParameterType
from inference_schema.schema_decorators import input_schema, output_schema


def init():
    pass


@input_schema("rows", NumpyParameterType(np.array([[0.5, 1.5]])))
@input_schema("table", PandasParameterType(pd.DataFrame({"age": [30], "name": ["Ann"]})), optional=True)
@input_schema("mode", StandardPythonParameterType("mean"), optional=True)
@input_schema("factor", StandardPythonParameterType(2), optional=True)
@output_schema(StandardPythonParameterType({"sum": 2.0}))
def run(rows, table=None, mode="mean", factor=2, request_headers=None):
    if mode == "raise":
        raise ValueError("asked for")
    ages = None if table is None else [int(a) for a in table["age"]]
    return {"sum": float(rows.sum()) * factor, "shape": list(rows.shape), "dtype": str(rows.dtype), "ages": ages, "mode": mode, "test": request_headers.get("X-Test")}
