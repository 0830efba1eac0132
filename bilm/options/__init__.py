"""Hyper-parameters of a model and its training: validated dataclasses, presets, recipes and their files."""

from bilm.options.hyper_parameters import PRESETS as PRESETS
from bilm.options.hyper_parameters import CharCNNOptions as CharCNNOptions
from bilm.options.hyper_parameters import LSTMOptions as LSTMOptions
from bilm.options.hyper_parameters import Options as Options
from bilm.options.parameters import Activation as Activation
from bilm.options.parameters import Decay as Decay
from bilm.options.parameters import Optimizer as Optimizer
from bilm.options.parameters import Precision as Precision
from bilm.options.parameters import Recipe as Recipe
from bilm.options.parameters import SoftmaxBiasInit as SoftmaxBiasInit
from bilm.options.parameters import SoftmaxRowInit as SoftmaxRowInit
