package envs

import "strings"

// pypiNames maps the names of conda packages to the projects that hold the same thing on PyPI. A
// name that is not here is taken as it is. docs/environments.md shows this table.
var pypiNames = map[string]string{
	"antlr-python-runtime": "antlr4-python3-runtime",
	"brotli-python":        "brotli",
	"dask-core":            "dask",
	"faiss":                "faiss-cpu",
	"fastapi-core":         "fastapi",
	"fbprophet":            "prophet",
	"keras-base":           "keras",
	"keras-gpu":            "keras",
	"lightgbm-gpu":         "lightgbm",
	"matplotlib-base":      "matplotlib",
	"msgpack-python":       "msgpack",
	"numpy-base":           "numpy",
	"nvidia-ml-py3":        "nvidia-ml-py",
	"opencv":               "opencv-python-headless",
	"psycopg2":             "psycopg2-binary",
	"py-opencv":            "opencv-python-headless",
	"py-xgboost":           "xgboost",
	"py-xgboost-cpu":       "xgboost",
	"py-xgboost-gpu":       "xgboost",
	"pyarrow-all":          "pyarrow",
	"pyarrow-core":         "pyarrow",
	"pybind11-global":      "pybind11",
	"pyg":                  "torch-geometric",
	"pyqt":                 "pyqt5",
	"pytables":             "tables",
	"python-duckdb":        "duckdb",
	"python-flatbuffers":   "flatbuffers",
	"python-graphviz":      "graphviz",
	"python-tzdata":        "tzdata",
	"python-xxhash":        "xxhash",
	"pytorch":              "torch",
	"pytorch-cpu":          "torch",
	"pytorch-geometric":    "torch-geometric",
	"pytorch-gpu":          "torch",
	"ray-core":             "ray",
	"ray-default":          "ray[default]",
	"ray-serve":            "ray[serve]",
	"ray-tune":             "ray[tune]",
	"seaborn-base":         "seaborn",
	"shapely-base":         "shapely",
	"sqlalchemy-base":      "sqlalchemy",
	"statsmodels-base":     "statsmodels",
	"tensorflow-base":      "tensorflow",
	"tensorflow-eigen":     "tensorflow",
	"tensorflow-gpu":       "tensorflow",
	"tensorflow-mkl":       "tensorflow",
	"torchaudio-cpu":       "torchaudio",
	"torchtriton":          "triton",
	"torchvision-cpu":      "torchvision",
	"uvicorn-standard":     "uvicorn[standard]",
	"xgboost-cpu":          "xgboost",
}

func pypiName(conda string) string {
	if n, ok := pypiNames[conda]; ok {
		return n
	}
	return conda
}

// bundledReason are conda packages that a wheel brings along or that mean nothing outside conda,
// and why they are left out.
var bundledReason = map[string]string{
	"cudatoolkit": inWheels, "cudnn": inWheels, "nccl": inWheels, "cuda": inWheels, "cuda-version": inWheels, "cutensor": inWheels, "cusparselt": inWheels,
	"mkl": inWheels, "mkl-service": inWheels, "mkl_fft": inWheels, "mkl_random": inWheels, "intel-openmp": inWheels, "llvm-openmp": inWheels,
	"blas": inWheels, "nomkl": inWheels, "openblas": inWheels, "magma": inWheels, "tbb": inWheels, "_openmp_mutex": inWheels, "_libgcc_mutex": inWheels,
	"openssl": withPython, "ca-certificates": withPython, "sqlite": withPython, "zlib": withPython, "readline": withPython,
	"tk": withPython, "xz": withPython, "ncurses": withPython, "bzip2": withPython, "python_abi": withPython, "ld_impl_linux-64": withPython, "tzdata": withPython,
	"expat": withPython,
	"zstd":  inWheels, "lz4-c": inWheels, "snappy": inWheels, "jpeg": inWheels, "lcms2": inWheels, "freetype": inWheels, "giflib": inWheels, "hdf5": inWheels,
	"arrow-cpp": inWheels, "boost-cpp": inWheels, "gflags": inWheels, "glog": inWheels, "grpc-cpp": inWheels, "re2": inWheels, "orc": inWheels,
	"xgboost-proc": inWheels, "pytorch-mutex": "it only selects a build of pytorch", "cpuonly": "it only selects a build of pytorch; the wheel of PyPI is taken",
	"pytorch-cuda": "it only selects a build of pytorch; the wheel of PyPI brings its own CUDA", "tensorflow-estimator": inWheels,
	"conda": "it is conda itself", "conda-build": "it is conda itself", "mamba": "it is conda itself",
	"icu": inWheels, "glib": inWheels, "fontconfig": inWheels, "harfbuzz": inWheels, "cairo": inWheels, "eigen": inWheels, "geos": inWheels, "proj": inWheels, "gdal-libs": inWheels,
}

const (
	inWheels   = "the wheels that need it bring their own"
	withPython = "the interpreter brings its own"
)

// bundled reports whether a conda package is left out, and why.
func bundled(name string) (string, bool) {
	if why, ok := bundledReason[name]; ok {
		return why, true
	}
	for _, p := range []string{
		"libgcc", "libgomp", "libstdcxx", "libblas", "libcblas", "liblapack", "libopenblas", "libgfortran", "libcu", "libnv",
		"libnccl", "libmagma", "cuda-", "libffi", "libpng", "libtiff", "libjpeg", "libwebp", "libxgboost", "libprotobuf", "libsqlite", "libuuid", "libzlib",
		"libnsl", "libxcrypt", "libexpat", "liblzma", "libsodium", "libarrow", "libparquet", "libhwloc", "libxml2", "libtorch", "libabseil", "libstdc",
	} {
		if strings.HasPrefix(name, p) {
			return inWheels, true
		}
	}
	return "", false
}

// nonPython is a conda package with no Python in it.
type nonPython struct {
	program string // on the node's PATH it serves as well
	advice  string
}

var nonPythonNames = map[string]nonPython{
	"nodejs": {program: "node"}, "openjdk": {program: "java"}, "java-jdk": {program: "java"}, "ffmpeg": {program: "ffmpeg", advice: "imageio-ffmpeg on PyPI brings an ffmpeg"},
	"git": {program: "git"}, "git-lfs": {program: "git-lfs"}, "curl": {program: "curl"}, "wget": {program: "wget"}, "make": {program: "make"},
	"gcc": {program: "gcc"}, "gxx": {program: "g++"}, "gfortran": {program: "gfortran"}, "gcc_linux-64": {program: "gcc"}, "gxx_linux-64": {program: "g++"},
	"gfortran_linux-64": {program: "gfortran"}, "compilers": {program: "g++"}, "c-compiler": {program: "gcc"}, "cxx-compiler": {program: "g++"}, "clang": {program: "clang"},
	"cuda-nvcc": {program: "nvcc"}, "graphviz": {program: "dot", advice: "python-graphviz is the Python side"}, "pandoc": {program: "pandoc", advice: "pypandoc-binary on PyPI brings a pandoc"},
	"tesseract": {program: "tesseract"}, "poppler": {program: "pdftotext"}, "imagemagick": {program: "magick"}, "sox": {program: "sox"},
	"perl": {program: "perl"}, "ruby": {program: "ruby"}, "go": {program: "go"}, "rust": {program: "cargo"}, "julia": {program: "julia"}, "maven": {program: "mvn"},
	"unzip": {program: "unzip"}, "zip": {program: "zip"}, "tar": {program: "tar"}, "tmux": {program: "tmux"}, "vim": {program: "vim"}, "bash": {program: "bash"},
	"samtools": {program: "samtools"}, "bedtools": {program: "bedtools"}, "blast": {program: "blastn"}, "bwa": {program: "bwa"},
	"postgresql": {program: "postgres"}, "redis": {program: "redis-server"},
	"gdal": {advice: "rasterio and fiona on PyPI bring their own GDAL"},
	"r":    {program: rscript}, "r-base": {program: rscript}, "r-essentials": {advice: "list the libraries that are used"}, "rstudio": {}, "mro-base": {program: rscript}, "octave": {program: "octave"}, "root": {},
	"anaconda-navigator": {}, "xorg": {}, "anaconda": {advice: "anaconda stands for hundreds of packages: list the ones that are imported"},
}

// rscript is the program of R that jobs call.
const rscript = "Rscript"

// notPython reports whether a conda package is known to hold no Python.
func notPython(name string) (nonPython, bool) {
	if f, ok := nonPythonNames[name]; ok {
		return f, true
	}
	if strings.HasPrefix(name, "r-") {
		return nonPython{advice: "R and its libraries are the node's own: install " + name + " there (in Debian r-cran-" + name[2:] + "), or use an image that has it"}, true
	}
	if strings.HasPrefix(name, "bioconductor-") || strings.HasPrefix(name, "perl-") || strings.HasPrefix(name, "xorg-") {
		return nonPython{}, true
	}
	return nonPython{}, false
}
