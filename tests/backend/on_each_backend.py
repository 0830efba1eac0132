"""What is the same on every backend, computed on the one that Keras runs on: `python -m ... DIRECTORY`.

Arrays go to ``DIRECTORY/<backend>.npz``, a Keras model to ``DIRECTORY/<backend>.keras``; a model that
TensorFlow has written there is read.
"""

import multiprocessing
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm.backend.keras_backend import BACKEND, keras
from bilm.data.packing import VectorForm
from bilm.errors import BackendError, ProcessError
from tests.helpers import FILES, GOLDEN, small_options

SENTENCES = [["Time", "flies"], ["Hello"], "a longer sentence , with some wörds in it".split(), ["x" * 70]]
WIDTH = small_options()["char_cnn"]["max_characters_per_token"]
IDS = bilm.batch_to_ids(SENTENCES, WIDTH)
MANY = [[f"w{k:04}"] + ["x"] * (k % 5) for k in range(1100)]  # more than are encoded or multiplied at once


def small_elmo(n_mixes=1, **changes):
    """One with weights that are the same everywhere."""
    clips = {"cell_clip": 0.3, "proj_clip": 0.1}  # which the values reach
    elmo = bilm.Elmo(small_options(lstm=clips), None, n_mixes, trainable=True, **changes)
    elmo.build()
    random = np.random.default_rng(7)
    for weight in elmo.weights:
        weight.assign(random.normal(0, 0.4, tuple(weight.shape)).astype(np.float32))
    return elmo


def gradients(elmo, ids):
    """Of a weighted sum of the vectors by the weights of the layer."""
    factors = np.random.default_rng(3).normal(size=(*ids.shape[:2], elmo.dim)).astype(np.float32)
    variables = elmo.trainable_variables
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(elmo(ids) * factors)
        found = tape.gradient(loss, [variable.value for variable in variables])
    elif BACKEND == "torch":
        (elmo(ids) * keras.ops.convert_to_tensor(factors)).sum().backward()
        found = [variable.value.grad for variable in variables]
    else:
        import jax

        def loss_of(values, others, ids):
            return (elmo.stateless_call(values, others, ids)[0] * factors).sum()

        others = [variable.value for variable in elmo.non_trainable_variables]
        found = jax.jit(jax.grad(loss_of))([variable.value for variable in variables], others, ids)
    arrays = (keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(gradient)) for gradient in found)
    names = (variable.path.partition("/")[2] for variable in variables)  # without the layer's own, a count
    return dict(zip(names, arrays, strict=True))


def model_above_elmo():
    """A tagger, with the mask passed on, as users build it."""
    ids = keras.Input((None, WIDTH), dtype="int32")
    lower, upper = small_elmo(2, do_layer_norm=True)(ids)
    joined = keras.layers.Concatenate()([lower, upper])
    outputs = keras.layers.TimeDistributed(keras.layers.Dense(3, kernel_initializer="ones"))(joined)
    return keras.Model(ids, outputs)


def everything(directory):
    """All arrays by name."""
    result = {}
    other = bilm.ElmoEmbedder(*(GOLDEN / "char-tanh-noskip-3layer" / file.name for file in FILES))
    embedder = bilm.ElmoEmbedder(*FILES, cuda_device=-1)
    for name, own in (("other", other), ("char", embedder)):
        for i, vectors in enumerate(own.embed_sentences(SENTENCES)):
            result[f"{name} embedder {i}"] = vectors
    result["top"] = embedder.embed_chunk(SENTENCES, VectorForm("top"))[2]
    result["mean"] = embedder.embed_chunk(SENTENCES, VectorForm("average", "float16"))[2]
    result["characters"] = embedder.embed_chunk(SENTENCES, VectorForm("characters", pooling="max"))[2]
    result["copied"] = pickle.loads(pickle.dumps(embedder)).embed_sentence(SENTENCES[2])
    rounded = bilm.ElmoEmbedder(*FILES, precision="bfloat16").embed_sentence(SENTENCES[2])
    assert 1e-4 < np.abs(rounded - result["char embedder 2"]).max() < 2e-2
    result["many"] = np.array([*embedder.embed_sentences(MANY, layers="top", pooling="mean")])
    result["long"] = embedder.embed_batch([["word", "by", "word"] * 900])[0][:, ::100]
    output = bilm.BidirectionalLanguageModel(*FILES)(bilm.Batcher(None, 50).batch_sentences(SENTENCES))
    many_ids = bilm.Batcher(None, 50).batch_sentences([[words[0] for words in MANY]])
    many = bilm.BidirectionalLanguageModel(*FILES)(many_ids)
    mixed = bilm.weight_layers("a mix", output, l2_coef=0.1, do_layer_norm=True)
    elmo = small_elmo()
    tensors = dict(output) | {
        "many at once": many.lm_embeddings[:, :, ::50],
        "weight_layers": mixed.weighted_op,
        "boundaries": small_elmo(keep_sentence_boundaries=True)(IDS),
        "nested": elmo(IDS[None]),
        "no words": elmo(IDS[:, :0]),
    }
    result |= {name: keras.ops.convert_to_numpy(tensor) for name, tensor in tensors.items()}
    result |= {f"gradient {name}": array for name, array in gradients(elmo, IDS).items()}
    assert BACKEND == "tensorflow" or "tensorflow" not in sys.modules, "TensorFlow was imported"
    bilm.dump_weights(model=FILES[1], outfile=directory / f"{BACKEND}.hdf5")
    model = model_above_elmo()  # whose training and prediction are Keras's, which may import it
    result["model"] = model.predict(IDS, verbose=0)
    result["mask"] = keras.ops.convert_to_numpy(model.layers[1].compute_mask(IDS)[0])
    model.save(directory / f"{BACKEND}.keras")
    model_of_tensorflow = keras.saving.load_model(directory / "tensorflow.keras")
    result["of tensorflow"] = model_of_tensorflow.predict(IDS, verbose=0)
    model.compile("sgd", "mse")
    targets = np.zeros((*IDS.shape[:2], 3), np.float32)
    training = model.fit(IDS, targets, batch_size=2, epochs=3, shuffle=False, verbose=0)
    result["losses"] = np.array(training.history["loss"])
    return result


def require_tensorflow():
    """What needs TensorFlow says so in a line."""
    needs = f"needs TensorFlow, and Keras runs on {BACKEND}"
    for name in ("LanguageModel", "SentenceVectorizer", "train", "restart"):
        with pytest.raises(BackendError, match=f"^bilm.{name}.*{needs}"):
            getattr(bilm, name)
    with pytest.raises(BackendError, match=f"^stateful.*{needs}"):
        bilm.ElmoEmbedder(*FILES, stateful=True)


def run_in_a_fork():
    """On PyTorch in one thread, as its data loaders fork."""
    embedder = bilm.ElmoEmbedder(*FILES)
    expected = embedder.embed_sentence(["Hello"])
    torch = sys.modules["torch"]
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, [1]) as pool:
        np.testing.assert_array_equal(pool.apply(embedder.embed_sentence, [["Hello"]]), expected)
    torch.set_num_threads(2)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        with pytest.raises(ProcessError, match="PyTorch cannot run in a fork"):
            pool.apply(bilm.ElmoEmbedder, FILES)


def write(folder):
    np.savez(folder / f"{BACKEND}.npz", **everything(folder))


if __name__ == "__main__":
    if BACKEND != "tensorflow":
        require_tensorflow()
    if BACKEND == "torch":
        run_in_a_fork()
    write(Path(sys.argv[1]))
