import pkg_resources  # what old packages import
import six

print("six", six.__version__, "setuptools", bool(pkg_resources.get_distribution("setuptools").version))
