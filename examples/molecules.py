"""Nearest neighbours of a molecule: python examples/molecules.py [SMILES [neighbours.svg]]

Trains an encoder without labels on some drugs, written as SMILES, and prints the drugs most similar to the given one
(default: ibuprofen) by the cosine of centred embeddings. Expect naproxen, penicillin G and ketoprofen, all of
them carboxylic acids. With a file name, draws them too. Needs graphcl[molecules]; takes a few seconds. On molecules of
your own, train on many more.
"""

import sys
from pathlib import Path

import torch
from rdkit.Chem import Draw, MolFromSmiles
from torch.nn.functional import cosine_similarity

from graphcl import ContrastiveModel, MoleculeGINE, ResidentLoader, embed, load_dataset, train
from graphcl.methods import TwoViews

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


def main(query: str = "CC(C)Cc1ccc(cc1)C(C)C(=O)O", picture: str | None = None) -> list[str]:
    dataset = load_dataset([query, *DRUGS.values()])
    torch.manual_seed(0)
    model = ContrastiveModel(MoleculeGINE(dataset.num_features, dataset.num_edge_features, hidden=64, layers=3))
    order, views = torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)
    loader = ResidentLoader(dataset, batch_size=16, shuffle=True, generator=order)
    train(TwoViews(model, "infonce"), loader, "random4", "random4", epochs=50, lr=0.001, generator=views)
    h, _ = embed(model, ResidentLoader(dataset, batch_size=256))
    h = h - h.mean(dim=0)
    similarity = cosine_similarity(h[:1], h[1:])
    nearest = [(list(DRUGS)[number], similarity[number].item()) for number in similarity.argsort(descending=True)[:5]]
    for name, value in nearest:
        print(f"{value:6.2f}  {name}")
    if picture is not None:
        molecules = [MolFromSmiles(each) for each in (query, *(DRUGS[name] for name, _ in nearest))]
        captions = ["query", *(f"{name}, {value:.2f}" for name, value in nearest)]
        Path(picture).write_text(Draw.MolsToGridImage(molecules, molsPerRow=3, legends=captions, useSVG=True))
    return [name for name, _ in nearest]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
