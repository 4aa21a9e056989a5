"""Compare frozen embeddings of molecules with fingerprints and descriptors on scaffold splits (docs/molecules.md).

    pip download qc-B3DB --no-deps -d b3db && unzip b3db/qc_b3db-*.whl 'B3DB/*.tsv' -d b3db
    python benchmarks/molecules.py b3db/B3DB/B3DB_classification.tsv --smiles SMILES --target BBB+/BBB- \
        --encoder build/moses/run

Every row goes through the same linear probe (`graphcl.evaluate.ogb`). The untrained encoder has five seeds.
"""

import argparse

import numpy as np
import torch

from graphcl import ResidentLoader, embed, load_dataset, load_encoder
from graphcl.commands.transfer import untrained_encoder
from graphcl.datasets.fingerprints import descriptors, ecfp4
from graphcl.evaluate import ogb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--smiles", default="smiles")
    parser.add_argument("--target", required=True)
    parser.add_argument("--split", default="scaffold")
    parser.add_argument("--encoder", required=True, help="encoder.pt, or the folder of a run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset(given.file, smiles=given.smiles, target=given.target, split=given.split)
    print(dataset, {part: len(graphs) for part, graphs in dataset.benchmark.split.items()})
    loader, smiles = ResidentLoader(dataset, 1024), tuple(dataset._data.smiles)
    trained, description = load_encoder(given.encoder)
    rows = {
        "untrained": [embed(untrained_encoder(description, seed), loader)[0] for seed in range(5)],
        "trained": [embed(trained, loader)[0]],
        "ECFP4": [ecfp4(smiles)],
        "descriptors": [descriptors(smiles)],
    }
    rows["trained and descriptors"] = [torch.cat([rows["trained"][0], rows["descriptors"][0]], dim=1)]
    for name, embeddings in rows.items():
        split, metric = dataset.benchmark.split, dataset.benchmark.eval_metric
        scores = [ogb(h, dataset.y, split=split, eval_metric=metric, workers=1).mean for h in embeddings]
        print(f"{name:24} {metric} {np.mean(scores):.2f} ± {np.std(scores):.2f} ({len(scores)})", flush=True)


if __name__ == "__main__":
    main()
