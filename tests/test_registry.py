"""Test registries and the validation of arguments."""

import sys

import pytest

import graphcl.api
from graphcl.arguments import Interval, Ratio, Temperature
from graphcl.errors import InputError, InputTypeError
from graphcl.registry import Registry, augmentations, encoders, losses


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Yield a registry of one package; the only module of the package registers the function `plain`."""
    (tmp_path / "toy_losses").mkdir()
    (tmp_path / "toy_losses" / "__init__.py").touch()
    (tmp_path / "toy_losses" / "plain.py").write_text(
        "from graphcl.arguments import Temperature\n"
        "import toy_registry\n"
        "@toy_registry.toys.register('plain')\n"
        "def plain(z1, z2, *, temperature: Temperature = 0.5, flag: bool = True):\n"
        "    '''A plain toy.\n\n    More.'''\n"
        "    return temperature\n"
    )
    text = "from graphcl.registry import Registry\ntoys = Registry('toy', 'toy_losses')\n"
    (tmp_path / "toy_registry.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import toy_registry

    yield toy_registry.toys
    for name in ("toy_registry", "toy_losses", "toy_losses.plain"):
        sys.modules.pop(name, None)


def test_a_file_in_the_package_registers_itself(package):
    assert list(package) == ["plain"]
    assert package["plain"](None, None) == 0.5
    assert package.summary("plain") == "A plain toy."
    assert package.arguments("plain").defaults == {"temperature": 0.5, "flag": True}
    assert package.arguments("plain").required == ["z1", "z2"]


def test_mistakes_name_the_value_and_the_remedy(package):
    """Unknown and repeated names, and wrong arguments, listed together or raised by a direct call."""
    plain, again = package["plain"], package.register("plain")
    for error, message, call in [
        (InputError, r"unknown toy 'plane'; did you mean plain\? choose from: plain\.", lambda: package["plane"]),
        (InputError, r"toy `plain` is registered already, by toy_losses\.plain\.", lambda: again(len)),
        (InputError, r"`temperature` must be in \[1e-6, inf\), got 0\.0\.", lambda: plain(0, 0, temperature=0.0)),
        (InputTypeError, "`temperature` must be a number, got 'a'", lambda: plain(0, 0, temperature="a")),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert package.problems("plain", {"temperature": -1.0, "flag": "x", "tau": 1}, "loss.") == [
        "`loss.temperature` must be in [1e-6, inf), got -1.0.",
        "`loss.flag` must be true or false, got 'x'.",
        "`loss.tau` is not a known key; did you mean temperature? choose from: flag, temperature.",
    ]
    assert package.problems("plain", {"temperature": 1}) == []


def test_a_name_is_a_word_for_the_command_line():
    toys = Registry("toy")
    for name in ("", "auto", "all", "a b/../c", "..", "--x", "a\n", "yes", "null", "12", None, 3, len):
        with pytest.raises(InputError, match=r"^a toy must be registered by a name of letters, .*, got .*\.$"):
            toys.register(name)
    for name in ("a", "nt_xent", "graph-cl.2", "3d_set", "ähnlich"):
        toys.register(name)(len)
    assert len(toys) == 5


def test_every_entry_has_a_summary_and_valid_defaults():
    for registry in (losses, augmentations, encoders):
        assert len(registry) >= 2
        for name in registry:
            assert 15 < len(registry.summary(name)) < 120, name
            assert "$" not in registry.summary(name), name
            assert registry.problems(name, registry.arguments(name).defaults) == [], name


def test_intervals():
    for notation, inside, outside in [
        ("[0, 1)", [0, 0.5, 0.999], [1, -1e-9, float("nan")]),
        ("(0, inf)", [1e-9, 1e300], [0, float("inf"), float("nan")]),
        ("(0, inf]", [float("inf")], [0]),
        ("[2, inf)", [2], [1.99]),
    ]:
        assert all(value in Interval(notation) for value in inside), notation
        assert not any(value in Interval(notation) for value in outside), notation


def test_a_class_is_guarded_in_its_constructor_by_position_too():
    toys = Registry("toy", "graphcl.models.gin")

    @toys.register("toy")
    class Toy:
        """A class to register."""

        def __init__(self, ratio: Ratio = 0.1, temperature: Temperature = 1.0) -> None:
            self.ratio = ratio

    assert Toy(0.5).ratio == 0.5
    with pytest.raises(InputError, match=r"`ratio` must be in \[0, 1\), got 1\.5\."):
        Toy(1.5)


NOT_CALLED = {
    "Augmentation", "Config", "Decision", "EncoderDescription", "Identity", "InputError", "TrainingSettings", "run",
    "__version__", "dataset_names", "losses", "train",
}  # fmt: skip
"""Public names without arguments, with settings or named fields as arguments, or for inheritance only."""


def test_a_wrong_argument_name_of_a_public_function_is_one_line():
    for name in sorted({*graphcl.api.__all__} - NOT_CALLED):
        with pytest.raises(InputTypeError, match=rf"^`{name}`(: | has no argument `wrong`; ).*\.$"):
            getattr(graphcl, name)(wrong=1)
    with pytest.raises(
        InputTypeError, match=r"`load_dataset` has no argument `root`; did you mean data_root or role\? choose"
    ):
        graphcl.load_dataset("MUTAG", root="here")
    with pytest.raises(InputTypeError, match=r"`load_dataset`: missing a required argument: 'source'\."):
        graphcl.load_dataset()
