"""Pretrain `molecules`, the encoder that is installed with graphcl: python benchmarks/pretrain_molecules.py WHEEL ...

    pip download chemicals==1.5.2 --no-deps -d wheels
    python benchmarks/pretrain_molecules.py wheels/chemicals-*.whl --out build/molecules --hold-out freesolv.csv ...

Every molecule is contrasted with a vector: RDKit's descriptors, measured properties, or descriptors of
a conformer. The wheel of `chemicals` (Caleb Bell and others, MIT licence) holds 73,000 compounds of PubChem, and
properties of half of them. Molecules in the files after `--hold-out` are left out, also their salts, so that the
encoder can be tested on these. Further options are those of `graphcl run`. The encoder is OUT/encoder.pt: that of
molecules in OUT/run/encoder.pt, without its projector.
"""

import argparse
import csv
import gzip
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import Descriptors3D, EnumerateStereoisomers, rdDistGeom, rdMolDescriptors

from graphcl import write_on_disk
from graphcl.models.saved import new_encoder, read_saved, save_encoder
from graphcl.run import main as run

TABLES = [f"chemicals/Identifiers/chemical identifiers pubchem {part}.tsv" for part in ("large", "small")]
CAS, SMILES = 1, 4
"""Columns of TABLES: the CAS number, which the tables of properties have too, and the structure."""
MEASURED = """
Critical Properties/Appendix to PSRK Revision 4.tsv
Critical Properties/CRCCriticalOrganics.tsv
Critical Properties/DIPPRPinaMartines.tsv
Critical Properties/IUPACOrganicCriticalProps.tsv
Critical Properties/Yaws Collection.tsv
Electrolytes/Permittivity (Dielectric Constant) of Liquids.tsv
Environment/CRC logP table.tsv
Environment/Syrres logP data.csv.gz
Heat Capacity/CRC Standard Thermodynamic Properties of Chemical Substances.tsv
Heat Capacity/TRC Thermodynamics of Organic Compounds in the Gas State.tsv
Misc/CRC Handbook Organic RI.csv
Misc/Muller Supporting Info Dipoles.csv
Misc/Physical Constants of Inorganic Compounds.csv
Misc/Physical Constants of Organic Compounds.csv
Misc/Poling Dipole.csv
Misc/alshehri_hansen_solubility_parameters.tsv
Misc/cccbdb.nist.gov Dipoles.csv
Misc/common_chemistry_data.tsv
Misc/hspipy_hansen_solubility_parameters.tsv
Misc/ruben_manuel_hansen_solubility_parameters.tsv
Misc/schrier_hansen_solubility_parameters.tsv
Misc/webbook_constants.tsv
Misc/wikidata_properties.tsv
Phase Change/CRC Handbook Heat of Fusion.tsv
Phase Change/CRC Handbook Heat of Vaporization.tsv
Phase Change/Ghazerati Appendix Sublimation Enthalpy.tsv
Phase Change/Ghazerati Appendix Vaporization Enthalpy.tsv
Phase Change/OpenNotebook Melting Points.tsv
Phase Change/Yaws Boiling Points.tsv
Reactions/API TDB Albahri Hf (g).tsv
Reactions/Yaws Hf S0 (g).tsv
Safety/DIPPR T_flash Serat.csv
""".strip().splitlines()
"""Tables of the wheel that hold PROPERTIES, without those named as predictions."""
PROPERTIES = [
    "Tm", "Tb", "Tc", "Pc", "Vc", "omega", "Hvap", "Hvap298", "Hsub", "Hfus", "Hfg", "Hfl", "Hfs", "S0g", "RI", "rho",
    "logP", "HANSEN_DELTA_D", "HANSEN_DELTA_P", "HANSEN_DELTA_H", "dipole_moment", "Vml", "Vms", "T_flash",
    "Permittivity",
]  # fmt: skip
"""Columns of MEASURED: melting, boiling and critical points, heats, entropy, refraction, density, solubility, ..."""
SOURCES = ("descriptors", "properties", "conformers")
RECIPE = {
    "encoder": "molecule_gine",
    "encoder.hidden_channels": 128,
    "encoder.num_layers": 5,
    "encoder.readout": "sum",
    "encoder.jk": "cat",
    "target_encoder.num_layers": 2,
    "projector": "linear",
    "projection": 128,
    "loss": "infonce",
    "loss.temperature": 0.1,
    "steps": 1500,
    "batch_size": 512,
    "lr": 0.001,
    "schedule": "cosine",
    "warmup": 0.1,
    "threads": 1,
}


def compounds(wheel: Path, hold_out: Iterable[Path] = ()) -> dict[str, str]:
    """Return CAS number -> SMILES of the compounds in a wheel of `chemicals`, in a random order, one per skeleton.

    Nine of ten have no stereochemistry, so every second compound gets a random one where it has none: otherwise an
    encoder would hardly know these categories.
    """
    found: list[tuple[str, str]] = []
    with zipfile.ZipFile(wheel) as files, rdBase.BlockLogs():
        seen = {skeleton(each) for file in hold_out for each in molecules(file) if each}
        for line in b"".join(map(files.read, TABLES)).decode().splitlines():
            cells = line.split("\t")
            number, smiles = cells[CAS], cells[SMILES]
            molecule = Chem.MolFromSmiles(smiles)
            if not molecule or molecule.GetNumAtoms() == 1 or (key := skeleton(molecule)) in seen:
                continue
            seen.add(key)
            found.append((number, stereoisomer(molecule, len(found)) if len(found) % 2 else smiles))
    return dict(found[i] for i in np.random.default_rng(0).permutation(len(found)))


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
    """Return 321 counts, surfaces, charges and autocorrelations: RDKit takes a millisecond for all; NaN if none."""
    molecule = Chem.MolFromSmiles(smiles)
    groups = [
        rdMolDescriptors.MQNs_(molecule),
        rdMolDescriptors.SlogP_VSA_(molecule),
        rdMolDescriptors.SMR_VSA_(molecule),
        rdMolDescriptors.PEOE_VSA_(molecule),
        rdMolDescriptors.Properties().ComputeProperties(molecule),
        rdMolDescriptors.CalcAUTOCORR2D(molecule),
    ]
    try:
        groups.append(rdMolDescriptors.BCUT2D(molecule))
    except ValueError:  # an atom without parameters
        groups.append([np.nan] * 8)
    values = np.concatenate([np.array(group) for group in groups])
    values[np.isinf(values)] = np.nan
    return (np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)


def properties(wheel: Path, numbers: Iterable[str]) -> np.ndarray:
    """Return the measured PROPERTIES of compounds, given by CAS number, `[n, 25]`: the median over tables, NaN if none.

    The 0.5 % smallest and largest values of each column are clamped, because some tables have errors of the unit.
    """
    row = {number.replace("-", ""): i for i, number in enumerate(numbers)}
    cells = defaultdict(list)
    with zipfile.ZipFile(wheel) as files:
        for name in MEASURED:
            data = files.read(f"chemicals/{name}")
            text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
            for line in csv.DictReader(text.splitlines(), delimiter="\t"):
                if (i := row.get(line["CAS"].replace("-", ""))) is not None:
                    for j, key in enumerate(PROPERTIES):
                        if value := line.get(key):
                            cells[i, j].append(float(value))
    found = np.full((len(row), len(PROPERTIES)), np.nan)
    for place, values in cells.items():
        found[place] = np.median(values)
    return np.clip(found, *np.nanquantile(found, (0.005, 0.995), axis=0))


def conformers(smiles: Iterable[str]) -> np.ndarray:
    """Return 11 descriptors of the shape of one conformer by ETKDG, `[n, 11]`; NaN if embedding takes over a second."""
    options = rdDistGeom.ETKDGv3()
    options.randomSeed, options.timeout = 0, 1
    found = []
    for each in smiles:
        molecule = Chem.AddHs(Chem.MolFromSmiles(each))
        failed = rdDistGeom.EmbedMolecule(molecule, options) < 0
        found.append([np.nan] * 11 if failed else [*Descriptors3D.CalcMolDescriptors3D(molecule).values()])
    return np.array(found)


def vectors(sources: Iterable[str], found: Mapping[str, str], wheel: Path) -> np.ndarray:
    """Return the vectors of `compounds`, the columns of `sources` side by side."""
    smiles = tuple(found.values())
    with rdBase.BlockLogs():
        make = {
            "descriptors": lambda: np.stack([descriptors(each) for each in smiles]),
            "properties": lambda: properties(wheel, found),
            "conformers": lambda: conformers(smiles),
        }
        return np.concatenate([make[source]() for source in sources], axis=1).astype(np.float32)


def write(smiles: Sequence[str], rows: np.ndarray, out: Path, name: str) -> None:
    """Write molecules to OUT/graphs, vectors to OUT/vectors.npy, and OUT/pairs.csv, without those without a number."""
    known = ~np.isnan(rows).all(axis=1)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "vectors.npy", rows[known])
    lines = [f"{number},{number}\n" for number in range(int(known.sum()))]
    (out / "pairs.csv").write_text("".join(["query,target\n", *lines]))
    write_on_disk([each for each, keep in zip(smiles, known, strict=True) if keep], out / "graphs", name=name)


def contrasted(out: Path) -> dict[str, object]:
    """Return the settings of a run on the molecules and vectors in a folder."""
    return {
        "dataset": out / "graphs",
        "targets": out / "vectors.npy",
        "positives": out / "pairs.csv",
        "eval": "none",
    }


def write_bare(folder: Path, file: Path) -> None:
    """Write the encoder of graphs of a run of two towers, without its projector."""
    description, weights = read_saved(folder)
    bare = description.model_copy(update={"tower": None, "target": None})
    bare = bare.model_copy(update={"out_channels": new_encoder(bare).out_channels})
    kept = {
        seed: {name.removeprefix("encoder."): value for name, value in state.items() if name.startswith("encoder.")}
        for seed, state in weights.items()
    }
    save_encoder(file, bare, kept)


def words(settings: Mapping[str, object]) -> list[str]:
    """Return settings as options of `graphcl run`."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hold-out", type=Path, nargs="*", default=[], help="files of molecules: .csv, .tsv, .sdf")
    parser.add_argument("--vectors", nargs="+", choices=SOURCES, default=["descriptors", "properties"])
    given, options = parser.parse_known_args(arguments)
    if not (given.out / "graphs").exists():
        found = compounds(given.wheel, given.hold_out)
        write(list(found.values()), vectors(given.vectors, found, given.wheel), given.out, "chemicals")
    code = run([*words({**contrasted(given.out), **RECIPE, "seeds": 0, "resume": given.out / "run"}), *options])
    if not code:
        write_bare(given.out / "run", given.out / "encoder.pt")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
