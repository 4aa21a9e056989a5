"""A search for settings with Optuna: pip install optuna && python examples/optuna_search.py (a minute on a CPU)

`run` takes the settings of the command line. The search maximises `validation`, the score on the inner folds, and looks
at the test accuracy of the best trial only. Expect an accuracy above 80 %.
"""

from graphcl.run import run


def objective(trial, epochs=10):
    views = ["random4", "node_drop", "subgraph", "identity"]
    result = run(
        dataset="synthetic",
        loss="adnce",
        lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True),
        epochs=epochs,
        seeds=[0],
        eval=["knn"],
        report=False,
        **{
            "loss.temperature": trial.suggest_float("temperature", 0.05, 1.0, log=True),
            "views.first": trial.suggest_categorical("first", views),
        },
    )
    trial.set_user_attr("accuracy", result.accuracy)
    trial.set_user_attr("folder", str(result.folder))
    return result.validation


if __name__ == "__main__":
    import optuna

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=20)
    best = study.best_trial
    print(f"{best.params}: {best.user_attrs['accuracy']:.1f} %, in {best.user_attrs['folder']}")
