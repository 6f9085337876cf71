# SPDX-License-Identifier: MIT
# Builds for 64-bit ARM on another Debian: its cross compiler, its arm64 packages of the libraries
# (tools/setup.sh --arm), and qemu-user to run what was built. QEMU_CPU in the environment chooses
# the processor that it plays: cortex-a72, neoverse-n1, max (all that it knows).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
find_program(MF_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(MF_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${MF_QEMU})
endif()
