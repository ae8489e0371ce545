# Puts models where scripts look for them. Workers of online and of batch deployments begin with it.
import os
import shutil
import tempfile


def place_model(name="model", folder=None):
    """Puts the model, which is the input of this name, where scripts look for it: at
    AZUREML_MODEL_DIR/NAME-AS-REGISTERED. The folder goes with the task."""
    path = os.environ.get("AZURE_ML_INPUT_" + name)
    base = os.environ.pop("BERTH_MODEL_BASE", "")
    title, version = os.environ.pop("BERTH_MODEL_NAME", "model"), os.environ.pop("BERTH_MODEL_VERSION", "1")
    is_file = os.environ.pop("BERTH_MODEL_FILE", "")
    if not path or not base:
        return
    if is_file and os.path.isdir(path):
        path = os.path.join(path, base)
    if folder is None:
        at = os.environ.get("BERTH_TASK_DIR")
        folder = tempfile.mkdtemp(prefix="berth-model-", dir=at if at and os.access(at, os.W_OK) else None)
    to = os.path.join(folder, "azureml-models", title, version)
    os.makedirs(to)
    place(os.path.realpath(path), os.path.join(to, base))
    os.environ["AZUREML_MODEL_DIR"] = to


def place(source, to):
    """Makes a file or folder appear at another place: by hard links, since MLflow refuses to follow
    links out of a model, or where that cannot be by a symbolic link."""
    try:
        if os.path.isfile(source):
            os.link(source, to)
            return
        for at, _, files in os.walk(source):
            inside = os.path.normpath(os.path.join(to, os.path.relpath(at, source)))
            os.makedirs(inside, exist_ok=True)
            for name in files:
                os.link(os.path.realpath(os.path.join(at, name)), os.path.join(inside, name))
    except OSError:
        shutil.rmtree(to, ignore_errors=True)
        os.symlink(source, to)


