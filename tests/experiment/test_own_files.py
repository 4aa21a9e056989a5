"""A run of every method reads its own files: resumed, resumed by its folder alone, from config.yaml, and loaded."""

import pytest

from graphcl import GraphCL, load_encoder
from graphcl.registry import methods
from graphcl.run import main
from tests.conftest import small_graphs

TINY = ["--epochs", "1", "--encoder.hidden-channels", "4", "--eval", "none", "--report", "false", "--seeds", "0"]


@pytest.mark.parametrize("name", methods)
def test_a_run_reads_its_own_files(name, saved_graphs, tmp_path, capsys):
    nodes, folder = methods.facts(name).get("rows") == "nodes", str(tmp_path / "run")
    data = ["--dataset", *(["sbm-400"] if nodes else [saved_graphs(), "--batch-size", "12"]), "--method", name]
    first = [*data, *TINY]
    assert main([*first, "--resume", folder]) == 0
    for words in (
        [*first, "--resume", folder],
        ["--resume", folder],
        ["--config", f"{folder}/config.yaml", "--out", str(tmp_path / "again")],
    ):
        assert main(words) == 0, capsys.readouterr().err
    assert "warning" not in capsys.readouterr().err
    if nodes:
        load_encoder(folder)
    else:
        loaded = GraphCL.load(folder)
        loaded.fit(small_graphs())
        loaded.save(tmp_path / "e.pt")
        graphs = small_graphs()
        assert (GraphCL.load(tmp_path / "e.pt").transform(graphs) == loaded.transform(graphs)).all()
