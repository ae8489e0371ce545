"""Irises: makes a model and files of rows, and scores them with joblib, as a plain script does.

  joblib.py make MODEL INPUT ROWS FILES
  joblib.py score MODEL INPUT RESULT PROCESSES
"""
import glob
import os
import sys

import joblib
import pandas


def make(model, folder, rows, files):
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    iris = load_iris(as_frame=True)
    os.makedirs(model)
    os.makedirs(folder)
    joblib.dump(LogisticRegression(max_iter=500).fit(iris.data, iris.target), os.path.join(model, "iris.joblib"))
    for i in range(files):
        part = iris.data.sample(rows // files, replace=True, random_state=i)
        part.to_csv(os.path.join(folder, f"part{i:04}.csv"), index=False)


def score(model, path):
    data = pandas.read_csv(path)
    return pandas.DataFrame({"file": os.path.basename(path), "species": model.predict(data)}).to_csv(header=False, index=False)


def main(model, folder, to, processes):
    loaded = joblib.load(os.path.join(model, "iris.joblib"))
    paths = sorted(glob.glob(os.path.join(folder, "*.csv")))
    with open(to, "w") as f:
        for text in joblib.Parallel(n_jobs=processes, return_as="generator")(joblib.delayed(score)(loaded, p) for p in paths):
            f.write(text)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
