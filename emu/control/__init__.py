# SPDX-License-Identifier: Apache-2.0
"""The control socket of a running server: one JSON object per line in both directions.

Request ``{"id": 1, "method": "counters", "params": {...}}``; reply ``{"id": 1, "result": ...}`` or
``{"id": 1, "error": {"message": ..., "hint": ...}}``. A streaming method replies with a result and then sends
``{"id": 1, "item": ...}`` lines until the client closes the connection.
"""
