"""The methods of a readout beside its effects, in the order of their sections."""

from kanab.analysis.methods.base import Method
from kanab.analysis.methods.bayes import Bayes
from kanab.analysis.methods.claims import Claims
from kanab.analysis.methods.contrasts import Contrasts
from kanab.analysis.methods.omnibus import Omnibus
from kanab.analysis.methods.quantiles import QuantileEffects
from kanab.analysis.methods.received import Received
from kanab.analysis.methods.segments import Segments
from kanab.analysis.methods.windows import Windows

METHODS: tuple[Method, ...] = (
    Windows(),
    Received(),
    QuantileEffects(),
    Omnibus(),
    Contrasts(),
    Claims(),
    Bayes(),
    Segments(),
)
