# SPDX-License-Identifier: Apache-2.0
"""Everything a fresh machine needs: a private Debian tree, libvfio-user, the guest's modules and programs.

The bash script ``scripts/setup`` makes the Python environment and then runs ``python -m emu.setup``. This
package uses the standard library and rich alone, so that it can run before anything else is built.
"""
