"""Pretrain `molecules`, the encoder that is installed with graphcl: python benchmarks/pretrain_molecules.py WHEEL ...

    pip download chemicals==1.5.2 --no-deps -d wheels
    python benchmarks/pretrain_molecules.py wheels/chemicals-*.whl --out build/molecules --hold-out freesolv.csv ...

Every molecule is contrasted with its descriptors (method `clip`). The wheel of `chemicals` (Caleb Bell and others, MIT
licence) holds 73,000 compounds of PubChem. Molecules in the files after `--hold-out` are left out, also their salts, so
that the encoder can be tested on these. Further options are those of `graphcl run`. The encoder is OUT/run/encoder.pt.
"""

import argparse
import csv
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import EnumerateStereoisomers, rdMolDescriptors

from graphcl import write_on_disk
from graphcl.run import main as run

TABLES = [f"chemicals/Identifiers/chemical identifiers pubchem {part}.tsv" for part in ("large", "small")]
SMILES = 4
"""Column of TABLES."""
RECIPE = {
    "encoder": "molecule_gine",
    "encoder.hidden_channels": 128,
    "encoder.num_layers": 5,
    "encoder.jk": "cat",
    "projection": 128,
    "loss": "infonce",
    "loss.temperature": 0.1,
    "steps": 1000,
    "batch_size": 512,
    "lr": 0.001,
    "schedule": "cosine",
    "warmup": 0.1,
    "threads": 1,
}


def compounds(wheel: Path, hold_out: Iterable[Path] = ()) -> list[str]:
    """Return the SMILES of the compounds in a wheel of `chemicals`, in a random order, one per skeleton.

    Nine of ten have no stereochemistry, so every second compound gets a random one where it has none: otherwise an
    encoder would hardly know these categories.
    """
    found: list[str] = []
    with zipfile.ZipFile(wheel) as files, rdBase.BlockLogs():
        seen = {skeleton(each) for file in hold_out for each in molecules(file) if each}
        for line in b"".join(map(files.read, TABLES)).decode().splitlines():
            smiles = line.split("\t")[SMILES]
            molecule = Chem.MolFromSmiles(smiles)
            if not molecule or molecule.GetNumAtoms() == 1 or (key := skeleton(molecule)) in seen:
                continue
            seen.add(key)
            found.append(stereoisomer(molecule, len(found)) if len(found) % 2 else smiles)
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


def skeleton(molecule: Chem.Mol) -> str:
    """Return the first block of the InChI key of the largest fragment: without salts, charges and stereochemistry."""
    largest = max(Chem.GetMolFrags(molecule, asMols=True, sanitizeFrags=False), key=Chem.Mol.GetNumAtoms)
    return Chem.MolToInchiKey(largest)[:14]


def molecules(file: Path) -> Iterator[Chem.Mol | None]:
    """Yield the molecules of an .sdf file, or of the column `smiles` of a .csv or .tsv file; None if invalid."""
    if file.suffix == ".sdf":
        yield from Chem.SDMolSupplier(str(file))
        return
    with open(file, newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t" if file.suffix == ".tsv" else ",")
        column = next((name for name in rows.fieldnames or () if name.lower() == "smiles"), None)
        if column is None:
            sys.exit(f"{file} has no column `smiles`.")
        yield from (Chem.MolFromSmiles(row[column]) for row in rows)


def stereoisomer(molecule: Chem.Mol, seed: int) -> str:
    """Return the SMILES of a random stereoisomer."""
    options = EnumerateStereoisomers.StereoEnumerationOptions(maxIsomers=1, rand=seed)
    return Chem.MolToSmiles(next(EnumerateStereoisomers.EnumerateStereoisomers(molecule, options)))


def descriptors(smiles: str) -> np.ndarray:
    """Return 121 counts, surfaces, charges and other descriptors: those of RDKit that take under a millisecond."""
    molecule = Chem.MolFromSmiles(smiles)
    groups = (
        rdMolDescriptors.MQNs_(molecule),
        rdMolDescriptors.SlogP_VSA_(molecule),
        rdMolDescriptors.SMR_VSA_(molecule),
        rdMolDescriptors.PEOE_VSA_(molecule),
        rdMolDescriptors.Properties().ComputeProperties(molecule),
    )
    values = np.nan_to_num(np.concatenate([np.array(group) for group in groups]), posinf=0, neginf=0)
    return (np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)


def write(smiles: Sequence[str], out: Path, name: str) -> None:
    """Write the descriptors of `smiles` to OUT/vectors.npy and then their graphs to OUT/graphs."""
    out.mkdir(parents=True, exist_ok=True)
    with rdBase.BlockLogs():
        np.save(out / "vectors.npy", np.stack([descriptors(each) for each in smiles]))
    write_on_disk(smiles, out / "graphs", name=name)


def words(settings: Mapping[str, object]) -> list[str]:
    """Return settings as options of `graphcl run`."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hold-out", type=Path, nargs="*", default=[], help="files of molecules: .csv, .tsv, .sdf")
    given, options = parser.parse_known_args(arguments)
    if not (given.out / "graphs").exists():
        write(compounds(given.wheel, given.hold_out), given.out, "chemicals")
    data = {"dataset": given.out / "graphs", "method": "clip", "method.vectors": given.out / "vectors.npy"}
    return run([*words({**data, **RECIPE, "seeds": 0, "resume": given.out / "run"}), *options])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
