#!/usr/bin/env python3
"""A worker in plain Python: attention as its formulas say, for cases in f16 of a few tokens. See docs/protocol.md."""
import json, math, os, struct

REQUESTS, ANSWERS = os.fdopen(3, "rb"), os.fdopen(4, "wb")


def read():
    """One message: its texts, and for each tensor its shape and its bytes."""
    size = REQUESTS.read(8)
    if len(size) < 8:
        raise SystemExit
    body = REQUESTS.read(struct.unpack("<Q", size)[0])
    end = 8 + struct.unpack("<Q", body[:8])[0]
    header = json.loads(body[8:end])
    texts = header.pop("__metadata__")
    return texts, {name: (t["shape"], body[end:][slice(*t["data_offsets"])]) for name, t in header.items()}


def write(tensors=(), **texts):
    header, data = {"__metadata__": texts}, b""
    for name, dtype, shape, values in tensors:
        start, data = len(data), data + struct.pack(f"<{len(values)}{'e' if dtype == 'F16' else 'f'}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, len(data)]}
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    ANSWERS.write(struct.pack("<QQ", 8 + len(header) + len(data), len(header)) + header + data)
    ANSWERS.flush()


def attention(plan, tensors):
    """O, LSE, dQ, dK and dV; tensors are [rows, heads, columns], and dead rows of the outputs stay 0."""
    hq, hk, c = plan["heads_q"], plan["heads_kv"], plan["scale"]
    given = {n: (s, struct.unpack(f"<{len(b) // 2}e", b)) for n, (s, b) in tensors.items() if n != "sink"}
    row = lambda name, r, h: given[name][1][(r * given[name][0][1] + h) * given[name][0][2]:][:given[name][0][2]]
    out = {n: [0.0] * len(given[like][1]) for n, like in zip(("o", "dq", "dk", "dv"), ("do", "q", "k", "v"))}
    out["lse"] = [0.0] * (plan["q"]["rows"] * hq)
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))

    def add(name, r, h, factor, values):
        for at, x in enumerate(values, (r * (hq if name in ("o", "dq") else hk) + h) * len(values)):
            out[name][at] += factor * x

    for m, n, q0, k0 in zip(plan["q"]["lengths"], plan["kv"]["lengths"], plan["q"]["starts"], plan["kv"]["starts"]):
        left, right, shift = plan["mask"]["left"], plan["mask"]["right"], n - m if plan["mask"]["bottom_right"] else 0
        for h in range(hq):
            g = h // (hq // hk)
            for i in range(m):
                keys = [j for j in range(n) if (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right)]
                q, do = row("q", q0 + i, h), row("do", q0 + i, h)
                s = [c * dot(q, row("k", k0 + j, g)) for j in keys]
                lse = max(s) + math.log(sum(math.exp(x - max(s)) for x in s)) if s else -math.inf
                out["lse"][(q0 + i) * hq + h] = lse
                p, dp = [math.exp(x - lse) for x in s], [dot(do, row("v", k0 + j, g)) for j in keys]
                for j, x, y in zip(keys, p, dp):
                    ds = c * x * (y - dot(p, dp))
                    add("o", q0 + i, h, x, row("v", k0 + j, g)), add("dv", k0 + j, g, x, do)
                    add("dq", q0 + i, h, ds, row("k", k0 + j, g)), add("dk", k0 + j, g, ds, q)
    shape = {"o": given["do"][0], "dq": given["q"][0], "dk": given["k"][0], "dv": given["v"][0]}
    lse = ("lse", "F32", [plan["q"]["rows"], hq, 1], out["lse"])
    return [(n, "F16", s, out[n]) for n, s in shape.items()] + [lse]


while True:
    texts, tensors = read()
    plan = json.loads(texts.get("plan", "{}"))
    if texts["message"] == "hello":
        write(message="hello", version="1", backend="formulas", about="plain Python", rounding="fp32", **{"dead-rows": "zero"})
    elif texts["message"] == "bye":
        write(message="bye")
    elif texts["message"] == "run" and (plan["dtype"] != "f16" or plan["softcap"] or plan["sink"] != "none"):
        write(message="refused", reason="f16 without softcap and sink is all that it does")
    elif texts["message"] == "run":
        write(attention(plan, tensors), message="outputs")
