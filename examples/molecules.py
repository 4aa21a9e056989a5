"""Nearest neighbours of a molecule: python examples/molecules.py [SMILES [neighbours.png]]

Embeds some drugs, written as SMILES, with the encoder that is installed with graphcl, and prints the drugs most similar
to the given one (default: ibuprofen) by the cosine of centred embeddings. Expect ketoprofen and naproxen, its
relatives, first. With a file name, draws them too; a notebook shows the result of `draw`. Needs graphcl[molecules].
"""

import sys

from PIL.Image import Image
from rdkit.Chem import Draw, MolFromSmiles
from sklearn.metrics.pairwise import cosine_similarity

from graphcl import GraphCL

DRUGS = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "ketoprofen": "CC(C(=O)O)c1cccc(C(=O)c2ccccc2)c1",
    "naproxen": "COc1ccc2cc(ccc2c1)C(C)C(=O)O",
    "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "theophylline": "Cn1c(=O)c2[nH]cnc2n(C)c1=O",
    "nicotine": "CN1CCCC1c1cccnc1",
    "diazepam": "CN1c2ccc(Cl)cc2C(=NCC1=O)c1ccccc1",
    "lorazepam": "OC1N=C(c2ccccc2Cl)c2cc(Cl)ccc2NC1=O",
    "penicillin G": "CC1(C)SC2C(NC(=O)Cc3ccccc3)C(=O)N2C1C(=O)O",
    "testosterone": "CC12CCC3C(CCC4=CC(=O)CCC34C)C1CCC2O",
    "progesterone": "CC(=O)C1CCC2C3CCC4=CC(=O)CCC4(C)C3CCC12C",
    "metformin": "CN(C)C(=N)NC(=N)N",
    "glucose": "OCC1OC(O)C(O)C(O)C1O",
}


def neighbours(query: str, count: int = 5) -> dict[str, float]:
    """Return the names of the drugs most similar to `query`, with their similarity."""
    h = GraphCL.pretrained("molecules").transform([query, *DRUGS.values()])
    similarity = cosine_similarity(h[:1] - h.mean(axis=0), h[1:] - h.mean(axis=0))[0]
    return {list(DRUGS)[number]: similarity[number] for number in similarity.argsort()[::-1][:count]}


def draw(query: str, nearest: dict[str, float]) -> Image:
    """Return a picture of the query and its neighbours."""
    molecules = [MolFromSmiles(each) for each in (query, *map(DRUGS.get, nearest))]
    captions = ["query", *(f"{name}, {value:.2f}" for name, value in nearest.items())]
    return Draw.MolsToGridImage(molecules, molsPerRow=3, legends=captions)


def main(query: str = "CC(C)Cc1ccc(cc1)C(C)C(=O)O", picture: str | None = None) -> list[str]:
    nearest = neighbours(query)
    for name, value in nearest.items():
        print(f"{value:6.2f}  {name}")
    if picture is not None:
        draw(query, nearest).save(picture)
    return list(nearest)


if __name__ == "__main__":
    main(*sys.argv[1:])
