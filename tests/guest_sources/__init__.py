# SPDX-License-Identifier: Apache-2.0
"""Tests of the guest's sources, which need the tree's compiler but no guest."""
