# SPDX-License-Identifier: Apache-2.0
"""Rules that a driver or a submission kernel can break, how each is found, and what happens then.

One file per family holds what its rules say (:class:`emu.checks.check.Check`) and the code that looks for
those which only a watch finds. Rules that the device needs anyway to do its work are reported where the core
meets them.
"""
