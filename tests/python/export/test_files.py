"""Files: ours read by torch.export, torch.export's read here, and what is not trusted."""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import zipfile
from typing import Any

import pytest
import torch
from torch import nn

from differential import assert_same
from framejit import export as fe
from framejit.export import Dim


class Everything(nn.Module):
    """Parameters, tied ones, buffers of both kinds, constants, lists, numbers."""

    def __init__(self, shares: bool = True) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("apart", torch.arange(4.0), persistent=False)
        if shares:
            self.register_buffer("part", self.norm.running_mean[1:])
        self.table = torch.ones(4, dtype=torch.bfloat16)

    def forward(self, x, index, *, scale=2.0, mode="sum"):
        y = self.norm(self.a(x)) + self.b(x) * self.apart
        left, right = y.split(2, dim=1)
        z = torch.cat([right, left], 1)[index].clamp(max=math.inf) * scale
        z = z.to(torch.float64) + self.table + torch.full((), -math.inf).exp()
        return {"z": z, "rows": x.shape[0] * 2, "top": tuple(z.topk(2))}, [None, 7]


def inputs(rows: int = 5) -> tuple[Any, dict[str, Any]]:
    return (torch.rand(rows, 4), torch.tensor([0, 2])), {"scale": 0.5}


def program(shares: bool = True) -> fe.ExportedProgram:
    torch.manual_seed(0)
    module = Everything(shares)
    rows = Dim("rows")
    args, kwargs = inputs()
    return fe.export(module, args, kwargs, dynamic_shapes={"x": {0: rows}})


def run(module: Any, rows: int) -> Any:
    torch.manual_seed(rows)
    args, kwargs = inputs(rows)
    return module(*args, **kwargs)


def saved(program: Any, save: Any = fe.save) -> io.BytesIO:
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return file


def same_programs(first: Any, second: Any) -> None:
    one, two = first.module(), second.module()
    for rows in (5, 3, 7):
        assert_same(run(one, rows), run(two, rows), f"{rows} rows")
    first, second = one.state_dict(), two.state_dict()
    both = [name for name in first if name in second]  # (torch names tied ones once)
    assert "a.weight" in both and "norm.running_mean" in both
    for name in both:
        assert_same(first[name], second[name], name)


def test_here_and_back():
    mine = program()
    loaded = fe.load(saved(mine))
    assert str(loaded.graph_signature) == str(mine.graph_signature)
    assert [n.name for n in loaded.graph.nodes] == [n.name for n in mine.graph.nodes]
    assert loaded.facts == mine.facts
    assert loaded.range_constraints == mine.range_constraints
    values = [str(node.meta.get("val")) for node in mine.graph.nodes]
    assert [str(node.meta.get("val")) for node in loaded.graph.nodes] == values
    same_programs(program(), loaded)
    args, _ = loaded.example_inputs
    assert args[0].shape == (5, 4)


def test_memory_that_is_shared_stays_so():
    loaded = fe.load(saved(program()))
    state = loaded.state_dict
    assert state["a.weight"] is not state["norm.weight"]
    assert state["a.weight"].data_ptr() == state["b.weight"].data_ptr()
    part, whole = state["part"], state["norm.running_mean"]
    assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def test_torch_reads_ours():
    theirs = torch.export.load(saved(program()))
    theirs.validate()
    same_programs(program(), theirs)
    args, kwargs = inputs(1)
    with pytest.raises(Exception, match="shape|size|>= 2|Guard"):
        theirs.module()(args[0][:, :3], args[1], **kwargs)


def test_torch_checks_our_comparisons():
    class Adds(nn.Module):
        def forward(self, x, y):
            return x + y

    mine = fe.export(
        Adds(),
        (torch.rand(3), torch.rand(3)),
        dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}),
    )
    for theirs in (torch.export.load(saved(mine)), mine.to_torch()):
        theirs.module()(torch.rand(5), torch.rand(5))
        with pytest.raises(AssertionError, match="Guard failed"):
            theirs.module()(torch.rand(5), torch.rand(1))


def test_ours_reads_torchs():
    args, kwargs = inputs()
    torch.manual_seed(0)
    theirs = torch.export.export(
        Everything(shares=False),
        args,
        kwargs,
        dynamic_shapes={
            "x": {0: torch.export.Dim("rows")},
            "index": None,
            "scale": None,
        },
    ).run_decompositions({})
    loaded = fe.load(saved(theirs, torch.export.save))
    same_programs(program(shares=False), loaded)
    same_programs(program(shares=False), fe.from_torch(theirs))


def test_in_memory_and_back():
    mine = program()
    theirs = mine.to_torch()
    assert theirs.state_dict["a.weight"] is mine.state_dict["a.weight"]
    theirs.validate()
    back = fe.from_torch(theirs)
    assert str(back.graph_signature) == str(mine.graph_signature)
    same_programs(program(), back)


def test_paths_and_extra_files(tmp_path):
    path = tmp_path / "program.pt2"
    fe.save(program(), path, extra_files={"note.txt": "of mine"})
    extra = {"note.txt": "", "other": ""}
    fe.load(path, extra_files=extra)
    assert extra == {"note.txt": "of mine", "other": ""}
    with pytest.raises(FileNotFoundError):
        fe.load(tmp_path / "none.pt2")


def changed(change: Any, name: str = "models/model.json") -> io.BytesIO:
    """A file with one record changed."""
    before = zipfile.ZipFile(saved(program()))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as after:
        for info in before.infolist():
            data = before.read(info)
            if info.filename.endswith(name):
                data = change(data)
            after.writestr(info.filename, data)
    file.seek(0)
    return file


def edited(edit: Any) -> Any:
    def change(data: bytes) -> bytes:
        row = json.loads(data)
        edit(row)
        return json.dumps(row).encode()

    return change


def first_target(name: str) -> Any:
    def edit(row: Any) -> None:
        row["graph_module"]["graph"]["nodes"][0]["target"] = name

    return edit


def other_size(text: str) -> Any:
    def edit(row: Any) -> None:
        values = row["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0]["as_expr"]["expr_str"] = text

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (first_target("os.system"), "calls os.system, which is not among"),
        (first_target("torch.load"), "calls torch.load, which is not among"),
        (first_target("torch.ops.aten.nothing.default"), "is not registered here"),
        (first_target("torch.ops.aten.__class__.x"), "is not registered here"),
        (other_size("__import__('os').getcwd()"), "no size"),
        (other_size("(lambda: 1)()"), "no size"),
        (other_size("s0 +"), "no size"),
        (other_size("2**2**2**2**2**2"), "no size"),
        (other_size("s0**(10**9)"), "no size"),
        (other_size("((s0**8)**8)**8"), "no size"),
        (other_size("1 << 10**9"), "no size"),
        (other_size("pow(9, 9**8)"), "no size"),
        (other_size("(" * 3000 + "s0" + ")" * 3000), "no .pt2 file|no size"),
        (lambda row: row.update(graph_module=[1]), "no exported program"),
        (lambda row: row.update(range_constraints={"s0": 3}), "no exported program"),
        (lambda row: row["schema_version"].update(major=7), "is of version 7"),
        (lambda row: row.pop("graph_module"), "no exported program: KeyError"),
    ],
)
def test_what_a_file_may_not_say(edit, message):
    with pytest.raises(fe.FileError, match=message):
        fe.load(changed(edited(edit)))


@pytest.mark.parametrize(
    "name",
    [
        *("from_file.default", "_print.default", "warn.default", "save.default"),
        *("set_data.default", "set_.source_Tensor", "set_grad_enabled.default"),
        *("_cufft_clear_plan_cache.default", "record_stream.default"),
    ],
)
def test_operators_that_do_more_than_to_compute(name):
    if not hasattr(torch.ops.aten, name.split(".")[0]):
        pytest.skip("this torch has no such operator")
    with pytest.raises(fe.FileError, match=r"no file may|not registered here"):
        fe.load(changed(edited(first_target(f"torch.ops.aten.{name}"))))


@pytest.mark.parametrize(
    "name", ["profiler._record_function_enter_new", "quantized.add", "prim.device"]
)
def test_operators_of_other_namespaces(name):
    with pytest.raises(fe.FileError, match=r"custom_ops|not registered here"):
        fe.load(changed(edited(first_target(f"torch.ops.{name}.default"))))


def test_operators_of_extensions_are_named():
    library = torch.library.Library("framejit_files", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

    class Twice(nn.Module):
        def forward(self, x):
            return torch.ops.framejit_files.twice(x)

    x = torch.rand(3)
    theirs = torch.export.export(Twice(), (x,))
    file = saved(theirs, torch.export.save)
    with pytest.raises(fe.FileError, match="custom_ops=.'framejit_files::twice'"):
        fe.load(file)
    file.seek(0)
    loaded = fe.load(file, custom_ops=["framejit_files::twice"])
    assert_same(loaded.module()(x), x * 2, "loaded")
    assert_same(fe.from_torch(theirs).module()(x), x * 2, "in memory")


RUNS = "open('ran', 'w')"


def renamed(old: str, new: str) -> Any:
    """Every JSON record with one text in place of another."""

    def change(data: bytes) -> bytes:
        written = json.dumps(new)[1:-1]
        return data.replace(old.encode(), written.encode())

    return change


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a.bias", 'training") is {} or getattr(self, "training'),
        ("a.bias", "w if {} else 0"),
        ("a.bias", "w\n    {}\n    x=(0)"),
        ("apart", 'x") is {} or getattr(self, "x'),
        ("apart", "\\"),
        ("apart", "class"),
        ('"x"', 'x={}"'),
        ('"index"', "index\n    {}"),
        ('"index"', "class"),
        ('"index"', "self"),
        ('"cat"', "y; {}; z"),
        ('"cat"', "if"),
    ],
)
def test_names_of_a_file_are_no_code(old, new, tmp_path, monkeypatch):
    """Whatever the names are, they are refused, or name what they named before."""
    monkeypatch.chdir(tmp_path)
    text = new.replace("{}", RUNS)
    file = changed(renamed(old.strip('"'), text.strip('"')), ".json")
    with contextlib.suppress(fe.FileError):
        run(fe.load(file).module(), 5)
    assert not (tmp_path / "ran").exists()


def test_paths_that_are_written_with_escapes():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            names = [
                "class",
                "if",
                "0",
                "gr\u00f6\u00dfe",
                "\ufb01",
                'a"b',
                "a'b",
                "a\\b",
            ]
            self.parts = nn.ModuleDict({name: nn.Linear(2, 2) for name in names})

        def forward(self, x):
            for part in self.parts.values():
                x = part(x)
            return x

    module, x = Odd(), torch.rand(3, 2)
    program = fe.export(module, (x,))
    assert_same(program.module()(x), module(x), "module")
    assert_same(fe.load(saved(program)).module()(x), module(x), "loaded")


def pickled(row: Any) -> None:
    for payload in row["config"].values():
        payload["use_pickle"] = True


def beyond(row: Any) -> None:
    for payload in row["config"].values():
        payload["tensor_meta"]["storage_offset"] = {"as_int": 10**6}


@pytest.mark.parametrize(
    ("edit", "message"), [(pickled, "is pickled"), (beyond, "lies outside of its")]
)
def test_tensors_that_are_not_read(edit, message):
    with pytest.raises(fe.FileError, match=message):
        fe.load(changed(edited(edit), "model_weights_config.json"))


def test_no_file():
    with pytest.raises(fe.FileError, match="no .pt2 file"):
        fe.load(io.BytesIO(b"something"))
    other = io.BytesIO()
    torch.save(torch.rand(2), other)
    other.seek(0)
    with pytest.raises(fe.FileError, match="no exported program"):
        fe.load(other)
    with pytest.raises(TypeError, match="expected an ExportedProgram, got Linear"):
        fe.save(nn.Linear(2, 2), io.BytesIO())


def test_damaged_files():
    good = saved(program()).getvalue()
    rng = random.Random(0)
    for number in range(60):
        data = bytearray(good)
        if number % 2:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(5):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(fe.FileError):
            fe.load(io.BytesIO(bytes(data)))
