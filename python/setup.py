# SPDX-License-Identifier: MIT
"""The wheel's version and tag: one for every Python 3, since nothing in it is compiled against one."""
import os

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class Binary(Distribution):
    """Has the shared library in it, so it is of a platform."""

    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(
    version=os.environ["MOEFLUX_VERSION"],
    distclass=Binary,
    cmdclass={"bdist_wheel": PlatformWheel},
)
