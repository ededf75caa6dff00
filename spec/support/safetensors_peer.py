"""The reference implementation's half of spec/io/safetensors_peer_spec.lua.

safetensors_peer.py read FILE...   prints what the files hold, one JSON value a file
safetensors_peer.py judge FILE...  prints 1 or 0 a file: whether the reference opens it
safetensors_peer.py write FILE     writes the tensors of the spec
"""
import ctypes
import json
import sys

import safetensors
from safetensors import SafetensorError, deserialize, serialize_file


def metadata_of(contents):
    n = int.from_bytes(contents[:8], "little")
    return json.loads(contents[8 : 8 + n]).get("__metadata__", {})


def read(path):
    with open(path, "rb") as file:
        contents = file.read()
    tensors = {
        name: {"dtype": t["dtype"], "shape": t["shape"], "hex": bytes(t["data"]).hex()}
        for name, t in deserialize(contents)
    }
    return json.dumps({"tensors": tensors, "metadata": metadata_of(contents)})


def judge(path):
    with open(path, "rb") as file:
        contents = file.read()
    try:
        deserialize(contents)
        return 1
    except (SafetensorError, OverflowError):
        return 0


def write(path):
    kept = []

    def tensor(dtype, shape, hexadecimal):
        data = bytes.fromhex(hexadecimal)
        if not hasattr(safetensors, "TensorSpec"):  # before 0.8
            return {"dtype": dtype, "shape": shape, "data": data}
        kept.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        return safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=ctypes.addressof(kept[-1]), data_len=len(data)
        )

    serialize_file(
        {
            "w": tensor("float32", [2, 2], "0000803f 010080ff 0100c07f 00000080"),
            "i": tensor("int32", [2], "ffffff7f 00000080"),
            "h": tensor("bfloat16", [3], "803f c17f 0080"),
            "scalar": tensor("float32", [], "db0f4940"),
            "empty": tensor("float32", [0, 3], ""),
            "double": tensor("float64", [1], "000000000000f03f"),
            "é \"\\\n": tensor("uint8", [3], "010203"),
        },
        path,
        {"format": "np", "q": "\"\n\u20ac"},
    )


if __name__ == "__main__":
    verb, paths = sys.argv[1], sys.argv[2:]
    for path in paths:
        result = {"read": read, "judge": judge, "write": write}[verb](path)
        if result is not None:
            print(result)
