# SPDX-License-Identifier: Apache-2.0
"""PCI and PCI Express capabilities, one file each."""
