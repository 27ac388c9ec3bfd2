"""Sizes and colours that all pictures share; the style sheet turns them dark."""

from __future__ import annotations

WIDTH = 440
"""Narrow enough that letters stay readable when a phone shrinks the picture."""

LETTER = 7.5
"""How wide a letter is taken to be, at the size that charts use."""

INK, MUTED, TRACK = "#1f2328", "#59636e", "#f0f3f6"
UP, DOWN, QUIET = "#0a58a8", "#a84a00", "#6b7580"
GREEN, VIOLET = "#3f7329", "#7a3e9d"

ARMS = (QUIET, UP, DOWN, GREEN, VIOLET)
"""The colours of arms and other lines that only have to differ, the control's first."""
