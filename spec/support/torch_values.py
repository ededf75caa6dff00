"""Writes spec/vectors/torch_ops.json: what PyTorch says the ops and the optimizers give.

    python spec/support/torch_values.py > spec/vectors/torch_ops.json

Inputs are formulas, element i (from 0) of an input is scale * sin(0.7 * i + k) + offset rounded to
f32, so that the file holds outputs and gradients only. PyTorch computes in f64 from these rounded
inputs: the numbers are the true ones as far as f32 can tell. Gradients are those of
sum(output * cotangent), the cotangent by the same formula with k = 11.
"""

import json
import math

import torch
import torch.nn.functional as F

COTANGENT_K = 11


def wave(dims, k, scale=1.0, offset=0.0):
    n = math.prod(dims)
    flat = [scale * math.sin(0.7 * i + k) + offset for i in range(n)]
    return torch.tensor(flat, dtype=torch.float32).double().reshape(dims)


def f(dims, k, scale=1.0, offset=0.0):
    """A float input."""
    return {"dims": list(dims), "k": k, "scale": scale, "offset": offset}


def ids(dims, values):
    """An integer input."""
    return {"dims": list(dims), "ids": values}


def make(spec):
    if "ids" in spec:
        return torch.tensor(spec["ids"], dtype=torch.int64).reshape(spec["dims"])
    return wave(spec["dims"], spec["k"], spec["scale"], spec["offset"]).requires_grad_()


def flat(tensor):
    return tensor.detach().reshape(-1).tolist()


def case(op, function, inputs, attrs=()):
    tensors = [make(spec) for spec in inputs]
    output = function(*tensors)
    (output * wave(output.shape, COTANGENT_K)).sum().backward()
    return {
        "op": op,
        "inputs": inputs,
        "attrs": list(attrs),
        "output_dims": list(output.shape),
        "output": flat(output),
        "grads": [flat(t.grad) if t.is_floating_point() else [] for t in tensors],
    }


def attention(heads, causal):
    def run(qkv):
        b, t, c3 = qkv.shape
        c = c3 // 3
        q, k, v = (x.view(b, t, heads, c // heads).transpose(1, 2) for x in qkv.split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2).reshape(b, t, c)

    return run


def matmul(trans_a, trans_b):
    def run(a, b):
        return (a.mT if trans_a else a) @ (b.mT if trans_b else b)

    return run


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def op_cases():
    yield case("transpose", lambda x: x.mT, [f((2, 3, 4), 1)])
    for name, function in (("add", torch.add), ("multiply", torch.multiply)):
        yield case(name, function, [f((2, 3), 1), f((2, 3), 2)])
        yield case(name, function, [f((2, 3, 4), 1), f((4,), 2)])
        yield case(name, function, [f((2, 3, 4), 1), f((3, 4), 2)])
    yield case("scale", lambda x: x * -1.5, [f((2, 3), 1)], [-1.5])
    # 37 is no multiple of a vector's width
    yield case("gelu", lambda x: F.gelu(x, approximate="tanh"), [f((37,), 1, 6.0)])
    yield case("relu", F.relu, [f((37,), 1, 6.0)])
    yield case("silu", F.silu, [f((37,), 1, 6.0)])
    for c in (8, 19):
        yield case("layernorm", lambda x, g, b, c=c: F.layer_norm(x, (c,), g, b, 1e-5),
                   [f((2, 3, c), 1, 2.0, 0.5), f((c,), 2, 0.5, 1.0), f((c,), 3)], [1e-5])
        yield case("rmsnorm", lambda x, g, c=c: F.rms_norm(x, (c,), g, 1e-6),
                   [f((2, 3, c), 1, 2.0, 0.5), f((c,), 2, 0.5, 1.0)], [1e-6])
    yield case("embedding", F.embedding, [ids((2, 4), [3, 0, 3, 4, 4, 3, 1, 0]), f((5, 6), 1)])
    yield case("linear", F.linear, [f((2, 3, 5), 1), f((4, 5), 2), f((4,), 3)])
    yield case("linear", F.linear, [f((2, 3, 5), 1), f((4, 5), 2)])
    for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        dims_a = (5, 3) if a else (3, 5)
        dims_b = (4, 5) if b else (5, 4)
        yield case("matmul", matmul(a, b), [f(dims_a, 1), f(dims_b, 2)], [a, b])
        yield case("matmul", matmul(a, b), [f((2,) + dims_a, 1), f((2,) + dims_b, 2)], [a, b])
        yield case("matmul", matmul(a, b), [f((2,) + dims_a, 1), f(dims_b, 2)], [a, b])
    for causal in (1, 0):
        yield case("attention", attention(2, bool(causal)), [f((2, 7, 24), 1, 1.5)], [2, causal])
        yield case("attention", attention(1, bool(causal)), [f((1, 9, 15), 2, 1.5)], [1, causal])
    yield case("cross_entropy", cross_entropy,
               [f((2, 3, 7), 1, 3.0), ids((2, 3), [0, 6, 2, 2, 5, 1])])
    for name, function in (("sum", torch.sum), ("mean", torch.mean)):
        yield case(name, lambda x, function=function: function(x), [f((2, 3, 4), 1)], [-1])
        for dim in range(3):
            yield case(name, lambda x, function=function, dim=dim: function(x, dim),
                       [f((2, 3, 4), 1)], [dim])


def optimizer_case(name, make_optimizer, hyper, steps=6):
    """Gradient of step s (from 1) is the formula with k = s; parameters after each step."""
    param = wave((7,), 5).requires_grad_()
    optimizer = make_optimizer([param])
    after = []
    for step in range(1, steps + 1):
        param.grad = wave((7,), step)
        optimizer.step()
        after.append(flat(param))
    return {"optimizer": name, "dims": [7], "k": 5, "hyper": hyper, "after": after}


def optimizer_cases():
    for lr, b1, b2, eps, decay in ((1e-2, 0.9, 0.999, 1e-8, 0.1), (3e-3, 0.9, 0.95, 1e-6, 0.0)):
        yield optimizer_case(
            "adamw",
            lambda p: torch.optim.AdamW(p, lr=lr, betas=(b1, b2), eps=eps, weight_decay=decay),
            {"lr": lr, "beta1": b1, "beta2": b2, "eps": eps, "decay": decay})
    for lr, momentum, decay in ((0.1, 0.0, 0.0), (0.1, 0.9, 0.0), (0.05, 0.9, 0.01)):
        yield optimizer_case(
            "sgd", lambda p: torch.optim.SGD(p, lr=lr, momentum=momentum, weight_decay=decay),
            {"lr": lr, "momentum": momentum, "decay": decay})


def clip_cases():
    """clip_grad_norm_ over three gradients of the formula with k = 1, 2, 3."""
    for max_norm in (1.0, 100.0):
        params = [torch.zeros(d, dtype=torch.float64) for d in ((4, 3), (7,), (1,))]
        for k, p in enumerate(params, 1):
            p.grad = wave(p.shape, k)
        norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
        yield {"max_norm": max_norm, "dims": [list(p.shape) for p in params],
               "norm": norm.item(), "clipped": [flat(p.grad) for p in params]}


def rows(items):
    return "[\n" + ",\n".join("  " + json.dumps(item) for item in items) + "\n ]"


def main():
    about = ("Values and gradients by PyTorch " + torch.__version__ + " (CPU, f64 from inputs "
             "rounded to f32). Made by spec/support/torch_values.py, which says what is what.")
    print("{" + f'"about": {json.dumps(about)},\n "cotangent_k": {COTANGENT_K},')
    print(f' "ops": {rows(op_cases())},')
    print(f' "optimizers": {rows(optimizer_cases())},')
    print(f' "clip": {rows(clip_cases())}' + "}")


if __name__ == "__main__":
    main()
