"""The public names of `bilm`, which the package imports when they are first used."""

from bilm.backend.settings import use_xla as use_xla
from bilm.data.batcher import Batcher as Batcher
from bilm.data.batcher import TokenBatcher as TokenBatcher
from bilm.data.batcher import batch_to_ids as batch_to_ids
from bilm.data.lm_datasets import BidirectionalLMDataset as BidirectionalLMDataset
from bilm.data.lm_datasets import LMDataset as LMDataset
from bilm.embedding.elmo_layer import Elmo as Elmo
from bilm.embedding.embedder import ElmoEmbedder as ElmoEmbedder
from bilm.embedding.embedder import dump_bilm_embeddings as dump_bilm_embeddings
from bilm.embedding.embedder import dump_token_embeddings as dump_token_embeddings
from bilm.embedding.prediction import WordPredictor as WordPredictor
from bilm.layers.scalar_mix import ScalarMix as ScalarMix
from bilm.layers.scalar_mix import weight_layers as weight_layers
from bilm.layers.sentence_vectorizer import SentenceVectorizer as SentenceVectorizer
from bilm.models.bidirectional_lm import BidirectionalLanguageModel as BidirectionalLanguageModel
from bilm.models.language_model import LanguageModel as LanguageModel
from bilm.options import Options as Options
from bilm.run_directory.directory import RunDirectory as RunDirectory
from bilm.runs.dump_weights import dump_weights as dump_weights
from bilm.runs.reporter import Reporter as Reporter
from bilm.runs.test import test as test
from bilm.runs.train import restart as restart
from bilm.runs.train import train as train
from bilm.text.pipeline import TextPipeline as TextPipeline
from bilm.text.prepare import prepare as prepare
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary as UnicodeCharsVocabulary
from bilm.vocabulary.vocabulary import Vocabulary as Vocabulary

from . import errors as errors

__version__: str
