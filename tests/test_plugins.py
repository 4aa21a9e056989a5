"""Test entry points of other packages: examples/plugin_package, and packages with defects."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from graphcl import __main__ as front
from graphcl.errors import InputError
from graphcl.registry import PluginWarning, Registry

if sys.version_info >= (3, 11):
    import tomllib

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin_package"


def install(folder, name, code, points):
    """Install a package into `folder`: write its module `code` and its metadata with the entry points `points`."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [line for group, of in points.items() for line in (f"[{group}]", *(f"{key} = {of[key]}" for key in of))]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def toys(folder):
    """Return a new registry that holds one name, `own`."""
    (folder / "toys.py").write_text(
        "from graphcl.registry import Registry\n"
        "toys = Registry('toy', 'toys', group='graphcl.toys', method='two_views')\n"
        "@toys.register('own')\ndef own(z, *, scale: float = 1.0):\n    return z\n"
    )
    import toys

    return toys.toys


ADDS = (
    "from graphcl.arguments import Ratio\ndef extra(z, *, ratio: Ratio = 0.5):\n    'An extra toy.'\n    return ratio\n"
)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads pyproject.toml with tomllib")
def test_the_example_package_adds_its_names(tmp_path):
    """Run in a separate process, because the example adds names to the registries."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    code = (EXAMPLE / "graphcl_plugin_example.py").read_text()
    install(tmp_path, "graphcl-plugin-example", code, project["project"]["entry-points"])
    script = """
import sys, torch
import graphcl
assert 'graphcl_plugin_example' not in sys.modules  # not before something is looked up
from graphcl import Loss, dataset_names, load_dataset
from graphcl.augment import two_views, Identity
from graphcl.cli.command_line import topic
from graphcl import __main__ as front
from graphcl.errors import InputError
from graphcl.registry import augmentations
from graphcl.run import main
assert 'rings_and_stars' in dataset_names()
listed = topic('datasets') + topic('losses') + topic('augmentations')
assert all(name in listed for name in ('rings_and_stars', 'cosine_margin', 'feature_noise'))
data = load_dataset('rings_and_stars', features='degree')
assert (data.name, len(data), data.num_classes, data.features) == ('rings_and_stars', 120, 2, 'degree')
noisy = augmentations['feature_noise'](std=0.1)(data[0])
assert 0 < (noisy.x - data[0].x).std() < 0.2
z = torch.eye(4)
assert Loss('cosine_margin')(z, z) == 0 and Loss('cosine_margin')(z, z.flip(0)) > 1
try: Loss('cosine_margin', margin=2.0)
except InputError as error: print(error)
words = '--dataset rings_and_stars --loss cosine_margin --views.second feature_noise --views.first identity'
more = '--seeds 0 --epochs 1 --eval knn --encoder.hidden_channels 8 --encoder.num_layers 2'
assert main([*words.split(), *more.split()]) == 0
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error::UserWarning:__main__", "-c", script]
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`margin` must be in [0, 1], got 2.0." in done.stdout
    assert "rings_and_stars" in done.stdout


def test_a_name_is_found_at_the_first_look_up(folder, toys):
    install(folder, "some-toys", ADDS, {"graphcl.toys": {"extra": "some_toys:extra"}, "other": {"not": "some_toys:no"}})
    assert "some_toys" not in sys.modules
    assert list(toys) == ["extra", "own"]
    assert toys["extra"](0) == 0.5
    assert toys.summary("extra") == "An extra toy."
    assert toys.facts("extra") == {"method": "two_views"}
    with pytest.raises(InputError, match=r"`ratio` must be in \[0, 1\), got 1\.0\."):
        toys["extra"](0, ratio=1.0)


@pytest.mark.parametrize("value", ["some_toys:extra", "some_toys"])
def test_a_module_may_register_by_the_decorator(folder, toys, value):
    decorated = "from toys import toys\n@toys.register('extra', method='moco')\n" + ADDS.split("\n", 1)[1]
    install(folder, "some-toys", decorated.replace(": Ratio", ""), {"graphcl.toys": {"extra": value}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert toys.facts("extra") == {"method": "moco"}


DEFECTS = [
    ("import nothing_of_this_name\n", "bad_toys:extra", "No module named 'nothing_of_this_name'"),
    ("raise RuntimeError('two\\nlines')\n", "bad_toys:extra", "two lines"),
    ("raise SystemExit('no licence')\n", "bad_toys:extra", "no licence"),
    ("def extra(: pass\n", "bad_toys:extra", "invalid syntax"),
    ("", "bad_toys:extra", "module 'bad_toys' has no attribute 'extra'"),
    ("extra = 3\n", "bad_toys:extra", "3 is not a module, class, method, or function"),
    ("def extra(z, a=1, *, b: 'Missing' = 2): pass\n", "bad_toys:extra", "name 'Missing' is not defined"),
]


@pytest.mark.parametrize(("code", "value", "reason"), DEFECTS)
def test_a_defective_entry_point_is_skipped_with_one_line(folder, toys, code, value, reason):
    install(folder, "bad-toys", code, {"graphcl.toys": {"extra": value}})
    install(folder, "good-toys", ADDS, {"graphcl.toys": {"fine": "good_toys:extra"}})
    with pytest.warns(PluginWarning) as caught:
        assert list(toys) == ["fine", "own"]
    (shown,) = caught
    line = str(shown.message)
    assert "toy `extra` of the installed package bad-toys 0.1 is skipped: " in line
    assert reason in line
    assert "\n" not in line


def test_the_first_of_several_packages_with_one_name_wins(folder, toys):
    """The library's names cannot be replaced; packages are sorted by their names."""
    install(folder, "some-toys", ADDS, {"graphcl.toys": {"own": "some_toys:extra"}})
    for name in ("b-toys", "a-toys"):
        install(folder, name, ADDS, {"graphcl.toys": {"extra": f"{name.replace('-', '_')}:extra"}})
    with pytest.warns(PluginWarning) as caught:
        assert [toys[name].__module__ for name in ("own", "extra")] == ["toys", "a_toys"]
    skipped = r"^toy `{}` of the installed package {}-toys 0\.1 is skipped: toy .* registered already, by {}\.$"
    lines = sorted(str(each.message) for each in caught)
    assert re.match(skipped.format("extra", "b", r"a-toys 0\.1"), lines[0])
    assert re.match(skipped.format("own", "some", "toys"), lines[1])


@pytest.fixture
def known(monkeypatch, folder):
    """Replace the library's registry of data sets by a new registry, which reads the installed entry points."""
    fresh = Registry("data set", "graphcl.datasets.names", group="graphcl.datasets")
    fresh.reserve("synthetic", "MUTAG")
    for place in ("load", "names", "sources.objects"):
        monkeypatch.setattr(f"graphcl.datasets.{place}.datasets", fresh)
    code = """import torch
from torch_geometric.data import Data, InMemoryDataset
def graphs(root):
    return [Data(x=torch.ones(n, 2), edge_index=torch.tensor([[0, 1], [1, 0]])) for n in (2, 3)]
def saved(root):
    InMemoryDataset.save(graphs(root), f'{root}/mine.pt')
    return f'{root}/mine.pt'
def prepared(root):
    from graphcl import load_dataset
    return load_dataset(graphs(root))
def broken(root):
    raise OSError('the server is away')
def empty(root):
    return []
"""
    names = ("graphs", "saved", "prepared", "broken", "empty")
    points = {f"set_{name}": f"some_sets:{name}" for name in names} | {"MUTAG": "some_sets:graphs"}
    install(folder, "some-sets", code, {"graphcl.datasets": points})
    return fresh


def test_data_sets_of_other_packages(known, tmp_path):
    from graphcl import dataset_names, load_dataset

    with pytest.warns(PluginWarning, match=r"data set `MUTAG` of .* some-sets 0\.1 is skipped: .*, by graphcl\.$"):
        assert "MUTAG" not in known
    assert dataset_names()[-5:] == ["set_broken", "set_empty", "set_graphs", "set_prepared", "set_saved"]
    for name in ("set_graphs", "set_saved", "set_prepared"):
        found = load_dataset(name, tmp_path)
        assert (found.name, len(found)) == (name, 2)
        assert load_dataset(name, tmp_path, features="degree").features == "degree"
    with pytest.raises(InputError, match=r"^cannot load 'set_broken' from some_sets: the server is away\.$"):
        load_dataset("set_broken", tmp_path)
    with pytest.raises(InputError, match="holds no graph"):
        load_dataset("set_empty", tmp_path)


def test_a_package_adds_a_command_and_a_module_of_names(folder, toys, capsys):
    code = (
        "from toys import toys\nSUMMARY = 'count words'\ndef main(arguments):\n    print(*arguments)\n    return 3\n"
        "@toys.register('counted')\ndef counted(z):\n    return z\n"
    )
    install(folder, "counting", code, {"graphcl.commands": {"count": "counting"}, "graphcl.toys": {"all": "counting"}})
    assert front.main(["count", "a", "b"]) == 3
    assert capsys.readouterr().out == "a b\n"
    front.main(["--help"])
    assert "  count      count words" in capsys.readouterr().out
    assert [*toys] == ["counted", "own"]


SETTINGS = """
from pathlib import Path
from typing import Annotated
from graphcl.arguments import KEPT, Settings

class Rings(Settings):
    length: Annotated[int, KEPT] = 3
    '''length of the rings'''

class Flavours(Settings):
    flavour: int = 3
    '''their taste'''

FILE = Path(__file__).with_name("encoder.pt")
"""
SOURCE = """
import networkx
from graphcl.extend import Source, sources

@sources.register("rings", takes="a .rings file")
class RingFile(Source):
    suffixes, settings, names = (".rings",), frozenset({"length"}), ("rings-3",)

    def read(self, source, request):
        return [networkx.cycle_graph(request.settings.length)] * 8

    def usual(self, source):
        return {"encoder": "gine"}
"""


def test_a_package_adds_settings_of_its_sources_and_of_runs_and_an_encoder_file(tmp_path):
    """Run in a separate process, as the settings are collected when they are first imported."""
    (tmp_path / "ring_settings.py").write_text(SETTINGS)
    points = {
        "graphcl.loading_settings": {"rings": "ring_settings:Rings"},
        "graphcl.run_settings": {"flavours": "ring_settings:Flavours"},
        "graphcl.pretrained": {"ring": "ring_settings:FILE"},
    }
    install(tmp_path, "ring-source", SOURCE, {**points, "graphcl.sources": {"rings": "ring_source"}})
    (tmp_path / "a.rings").touch()
    script = """
from graphcl import GraphCL, dataset_names, load_dataset, load_encoder, make_config
from graphcl.cli.command_line import topic
from graphcl.__main__ import main
assert load_dataset("./a.rings", length=5)[0].num_nodes == 5
assert "rings-3" in dataset_names()
assert make_config({"dataset": "./a.rings"}).encoder["name"] == "gine"
fitted = GraphCL(length=4, epochs=1, batch_size=4, features="degree").fit("./a.rings")
fitted.save("encoder.pt")
assert load_encoder("ring")[1].settings["length"] == GraphCL.load("ring").length == 4
assert main(["embed", "ring", "--dataset", "./a.rings", "--out", "h.npz"]) == 0
main(["embed", "--help"])
assert make_config({"flavour": 5}).flavour == 5
main(["run", "--help", "all"])
"""
    path = os.pathsep.join([str(tmp_path), str(EXAMPLE.parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "length of the rings" in done.stdout
    assert re.search(r"--flavour N +their taste", done.stdout)
