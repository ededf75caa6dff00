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


def conv2d(stride, padding):
    return lambda x, w, b=None: F.conv2d(x, w, b, stride, padding)


def image_cases():
    """Convolution, batch normalisation and pooling."""
    for x, w, stride, padding in (
            ((2, 3, 5, 7), (4, 3, 3, 3), 1, 1), ((2, 3, 6, 5), (2, 3, 3, 3), 2, 1),
            ((2, 3, 6, 5), (5, 3, 3, 2), 1, 0), ((1, 1, 7, 4), (1, 1, 2, 3), 2, 0),
            ((3, 5, 4, 4), (3, 5, 1, 1), 1, 0), ((2, 4, 5, 5), (6, 4, 1, 1), 2, 0),
            ((2, 2, 3, 3), (3, 2, 3, 3), 3, 2)):
        yield case("conv2d", conv2d(stride, padding), [f(x, 1), f(w, 2, 0.5), f((w[0],), 3)],
                   [stride, padding])
        yield case("conv2d", conv2d(stride, padding), [f(x, 1), f(w, 2, 0.5)], [stride, padding])
    for x in ((6, 3), (3, 4, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)):
        c = (x[1],)
        yield case("batchnorm",
                   lambda t, g, b: F.batch_norm(t, None, None, g, b, training=True, eps=1e-4),
                   [f(x, 1, 2.0, 0.5), f(c, 2, 0.5, 1.0), f(c, 3)], [1e-4])
        yield case("batchnorm_inference",
                   lambda t, g, b, m, v: (t - m.view(1, -1, *(1,) * (t.ndim - 2)))
                   / (v.view(1, -1, *(1,) * (t.ndim - 2)) + 1e-3).sqrt()
                   * g.view(1, -1, *(1,) * (t.ndim - 2)) + b.view(1, -1, *(1,) * (t.ndim - 2)),
                   [f(x, 1, 2.0, 0.5), f(c, 2, 0.5, 1.0), f(c, 3), f(c, 4), f(c, 5, 0.3, 1.0)],
                   [1e-3])
    for name, function in (("maxpool2d", F.max_pool2d), ("avgpool2d", F.avg_pool2d)):
        for x, kernel, stride, padding in (((2, 3, 6, 4), 2, 2, 0), ((1, 2, 7, 5), 3, 2, 1),
                                           ((2, 1, 5, 6), 3, 1, 0), ((1, 2, 20, 18), 18, 1, 0)):
            yield case(name, lambda t: function(t, kernel, stride, padding), [f(x, 1, 2.0, 1.0)],
                       [kernel, stride, padding])


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
    yield from recurrent_op_cases()
    yield from image_cases()


def lstm_cell(which):
    """PyTorch's cell on gates alone: an identity for the input's weight. which: 0 = h, 1 = c'."""
    def run(gates, c):
        width = c.shape[1]
        eye, zero = torch.eye(4 * width).double(), torch.zeros(4 * width, width).double()
        return torch.lstm_cell(gates, (torch.zeros_like(c), c), eye, zero)[which]

    return run


def gru_cell(x_gates, h_gates, h):
    """The formula of torch.nn.GRUCell, whose functional form takes no gates of h."""
    x_r, x_z, x_n = x_gates.chunk(3, 1)
    h_r, h_z, h_n = h_gates.chunk(3, 1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return (1 - z) * torch.tanh(x_n + r * h_n) + z * h


def recurrent_op_cases():
    for dims in ((2, 3), (3,), ()):
        yield case("subtract", torch.subtract, [f((2, 3), 1), f(dims, 2)])
    yield case("sigmoid", torch.sigmoid, [f((37,), 1, 6.0)])
    yield case("tanh", torch.tanh, [f((37,), 1, 3.0)])
    for dim, index in ((0, 1), (1, 2), (2, 0)):
        yield case("select", lambda x, dim=dim, index=index: x.select(dim, index),
                   [f((2, 3, 4), 1)], [dim, index])
    for width in (5, 19):
        gates = [f((3, 4 * width), 1, 2.0), f((3, width), 2)]
        yield case("lstm_cell", lstm_cell(0), gates, [0])
        yield case("lstm_cell", lstm_cell(1), gates, [1])
        yield case("gru_cell", gru_cell, [f((3, 3 * width), 1, 2.0), f((3, 3 * width), 2),
                                          f((3, width), 3)])


CELL_STEPS = 12


def unrolled_case(kind):
    """A cell of torch.nn over 12 steps from zeros, x (12, batch, n_in), loss = sum of h of every step
    times the cotangent (12, batch, width). Parameters by the formula, k = 1.. in PyTorch's order."""
    batch, n_in, width = 3, 4, 6
    make_cell = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}[kind]
    cell = make_cell(n_in, width).double()
    for k, p in enumerate(cell.parameters(), 1):
        p.data = wave(p.shape, k, 0.5)
    xs = wave((CELL_STEPS, batch, n_in), 7).requires_grad_()
    cotangent = wave((CELL_STEPS, batch, width), COTANGENT_K)
    h = torch.zeros(batch, width).double()
    state = (h, h) if kind == "lstm" else h
    loss = 0
    for x, g in zip(xs, cotangent):
        state = cell(x, state)
        h = state[0] if kind == "lstm" else state
        loss = loss + (h * g).sum()
    loss.backward()
    return {"cell": kind, "steps": CELL_STEPS, "batch": batch, "n_in": n_in, "width": width,
            "scale": 0.5, "x_k": 7, "loss": loss.item(), "h": flat(h), "x_grad": flat(xs.grad),
            "grads": {name: flat(p.grad) for name, p in cell.named_parameters()}}


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
    print(f' "clip": {rows(clip_cases())},')
    print(f' "unrolled": {rows(unrolled_case(kind) for kind in ("lstm", "gru"))}' + "}")


if __name__ == "__main__":
    main()
