"""The colours of pictures and pages: those of light pages, which files have too, and their names in the dark."""

INK, MUTED, TRACK, PAGE, LINE = "#1f2328", "#59636e", "#f0f3f6", "#ffffff", "#d1d9e0"
UP, DOWN, QUIET = "#0a58a8", "#a84a00", "#6b7580"
GREEN, VIOLET, ALARM = "#3f7329", "#7a3e9d", "#b42318"
NOTEBOOK_ALARM = "#d1242f"

ARMS = (QUIET, UP, DOWN, GREEN, VIOLET)
"""The colours of arms and other lines that only have to differ, the control's first."""

LIGHT = {
    "page": PAGE, "ink": INK, "muted": MUTED, "line": LINE, "track": TRACK,
    "up": UP, "down": DOWN, "quiet": QUIET, "green": GREEN, "violet": VIOLET, "fine": "#116329", "alarm": ALARM,
}  # fmt: skip
DARK = {
    "page": "#0f1419", "ink": "#e6edf3", "muted": "#a3adb8", "line": "#333c46", "track": "#1c232b",
    "up": "#79b8ff", "down": "#ffa657", "quiet": "#9aa5b1", "green": "#8fce73", "violet": "#cf9df0",
    "fine": "#56d364", "alarm": "#ff8a80",
}  # fmt: skip
