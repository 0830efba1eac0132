"""What users of PyTorch expect of a module, run in a process of its own by `test_torch_module`."""

import copy
import pickle
import sys

import keras
import numpy as np
import pytest
import torch

import bilm.allennlp
from bilm.errors import DataError
from tests.helpers import FILES, small_options

IDS = bilm.batch_to_ids([["Time", "flies", "by"], ["Hello"]], 20)


def make(n_mixes=1, **changes):
    return bilm.Elmo(small_options(), None, n_mixes, **changes)


class Tagger(torch.nn.Module):
    def __init__(self, **changes):
        super().__init__()
        self.elmo = make(**changes)
        self.output = torch.nn.Linear(self.elmo.dim, 3)

    def forward(self, ids):
        return self.output(self.elmo(ids))


def share_of_zeros(vectors):
    return float(np.mean(keras.ops.convert_to_numpy(vectors)[0] == 0))  # the first sentence has no padding


def test_nothing_of_tensorflow_is_loaded():
    make()(IDS)
    bilm.ScalarMix()(torch.ones(2, 3, 4, 5))
    bilm.BidirectionalLanguageModel, bilm.ElmoEmbedder, bilm.weight_layers  # noqa: B018
    assert "tensorflow" not in sys.modules


def test_train_and_eval_decide_whether_it_drops_and_an_argument_overrules_them():
    elmo = make(2, dropout=0.5)
    for _ in range(2):
        drops = [0.2 < share_of_zeros(vectors) < 0.8 for vectors in elmo.train()(IDS)]
        assert drops == [True, True]
    first, second = elmo(IDS)
    assert not torch.equal(first == 0, second == 0)  # each mix's output by itself
    kept = first[first != 0] / elmo.eval()(IDS)[0][first != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 2.0))
    assert share_of_zeros(elmo(IDS)[0]) == share_of_zeros(elmo.train()(IDS, training=False)[0]) == 0
    assert share_of_zeros(elmo.eval()(IDS, training=True)[0]) > 0.2


def test_within_a_keras_model_the_flag_of_keras_decides():
    inputs = keras.Input((None, 20), dtype="int32")
    elmo = make(dropout=0.5)
    model = keras.Model(inputs, elmo(inputs))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    assert elmo.training
    assert share_of_zeros(model.predict(IDS, verbose=0)) == share_of_zeros(model(IDS)) == 0
    assert share_of_zeros(model(IDS, training=True)) > 0.2
    elmo.eval()
    losses = [model.fit(IDS, np.zeros((2, 3, 8)), verbose=0).history["loss"] for _ in range(2)]
    assert losses[0] != losses[1]


def test_an_optimizer_made_before_the_first_call_trains_the_mix_alone():
    tagger = Tagger()
    names = [name for name, parameter in tagger.elmo.named_parameters() if parameter.requires_grad]
    assert [name.rpartition("/")[2] for name in names] == ["ELMo_W", "ELMo_gamma"]
    before = {name: value.clone() for name, value in tagger.state_dict().items()}
    optimizer = torch.optim.SGD(tagger.parameters(), lr=0.5)
    tagger(IDS).square().sum().backward()
    optimizer.step()
    after = tagger.state_dict()
    changed = {name.rpartition("/")[2] for name, value in after.items() if not value.equal(before[name])}
    assert changed == {"ELMo_W", "ELMo_gamma", "output.weight", "output.bias"}
    assert before.keys() == after.keys()  # the first call added none
    for parameter in tagger.elmo.parameters():
        parameter.requires_grad_(True)
    tagger(IDS).square().sum().backward()
    assert all(parameter.grad is not None for parameter in tagger.elmo.parameters())
    assert all(parameter.requires_grad for parameter in make(trainable=True).encoder.parameters())


def test_the_mode_of_the_module_around_it_and_the_seed_of_pytorch_count():
    tagger, outputs = Tagger(dropout=0.5), []
    for _ in range(2):
        torch.manual_seed(3)
        outputs.append(tagger.elmo(IDS))
    assert share_of_zeros(outputs[0]) > 0.2 and torch.equal(*outputs)
    assert share_of_zeros(tagger.eval().elmo(IDS)) == 0


def test_the_state_dict_depends_on_neither_name_nor_dropout_nor_calls():
    first, second, plain = Tagger(dropout=0.5), Tagger(dropout=0.5), Tagger()
    first(IDS)
    for other in (second, plain):
        other.load_state_dict(first.state_dict())
        assert torch.equal(other.eval()(IDS), first.eval()(IDS))
    assert not dict(first.named_buffers())


def test_other_types_of_numbers_and_sentences_without_words():
    tagger = Tagger().eval()
    expected = tagger(IDS)
    torch.testing.assert_close(tagger.double()(IDS).float(), expected)
    assert tagger(IDS).dtype == torch.float64 and tagger.half()(IDS).dtype == torch.float16
    assert Tagger()(bilm.batch_to_ids([[]], 20)).shape == (1, 1, 3)


def test_the_l2_term_is_among_the_losses():
    elmo = make(2, l2_coef=0.5)
    elmo.mixes[1].layer_weights.assign([1, 2, 2])
    sum(elmo.losses).backward()
    assert float(sum(elmo.losses)) == 0.5 * 9
    assert elmo.mixes[1].layer_weights.value.grad.tolist() == [1, 2, 2]


def test_the_module_with_allennlp_s_result():
    elmo = bilm.allennlp.Elmo(small_options(), None, 1)
    first, second = (elmo(torch.tensor(IDS))["elmo_representations"][0] for _ in range(2))
    assert not torch.equal(first == 0, second == 0)  # its dropout
    assert elmo.eval()(IDS)["mask"].tolist() == [[True, True, True], [True, False, False]]


def test_allennlp_s_names_give_tensors():
    sentences = [["Time", "flies"], ["Hello"]]
    ids = bilm.allennlp.batch_to_ids(sentences)
    assert ids.dtype == torch.int64 and torch.equal(ids.to("cpu"), torch.tensor(bilm.batch_to_ids(sentences)))
    elmo = bilm.allennlp.Elmo(*FILES, 2)
    vectors, other = elmo.forward(ids)["elmo_representations"]
    assert share_of_zeros(vectors) > 0.2 and not torch.equal(vectors, other)  # `forward` drops too
    kept = elmo.eval().forward(ids)["elmo_representations"][0]
    torch.testing.assert_close(kept, bilm.Elmo(*FILES).forward(ids))
    embedder = bilm.allennlp.ElmoEmbedder(*FILES, -1)
    embeddings, mask = embedder.batch_to_embeddings(sentences)
    assert mask.cpu().tolist() == [[1, 1], [1, 0]]
    for module in (embedder.elmo_bilm, bilm.allennlp._ElmoBiLm(*FILES, requires_grad=True)):
        result = module(ids)
        for vectors, expected in zip(result["activations"], embeddings.unbind(1), strict=True):
            found, words = bilm.allennlp.remove_sentence_boundaries(vectors, result["mask"])
            torch.testing.assert_close(found.detach(), expected, atol=1e-6, rtol=0)
            assert torch.equal(words, mask.bool())
    sum(vectors.sum() for vectors in result["activations"]).backward()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    assert len(trained) == 31 and all(parameter.grad is not None for parameter in trained)


def test_a_copy_is_a_module_of_its_own():
    elmo = make(dropout=0.5).eval()
    other = copy.deepcopy(elmo)
    assert torch.equal(other.eval()(IDS), elmo(IDS))
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    assert not other(IDS).any() and elmo(IDS).any()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_keep_mode_gradients_and_type(copied):
    tagger = Tagger(dropout=0.5, trainable=True).double().eval()
    tagger.elmo.mixes[0].requires_grad_(False)
    tagger(IDS)
    other = copied(tagger)
    assert torch.equal(other(IDS), tagger(IDS)) and other(IDS).dtype == torch.float64
    assert [part.training for part in other.modules()] == [part.training for part in tagger.modules()]
    kept, own = ([value.requires_grad for value in module.parameters()] for module in (other, tagger))
    assert kept == own and 0 < sum(own) < len(own)
    mix = bilm.ScalarMix()
    assert not [*copied(mix).parameters()]  # they are made when the number of layers is known
    mix(torch.ones(2, 3, 4, 5))
    assert copied(mix.eval()).state_dict().keys() == mix.state_dict().keys() and not copied(mix).training


def test_a_mix_has_its_parameters_where_the_number_of_layers_is_known():
    for changes in ({"initial_scalar_parameters": [0, 0, 0]}, {"use_top_only": True}):
        mix = bilm.ScalarMix(**changes)
        mix(torch.ones(2, 3, 4, 5)).sum().backward()
        assert mix.state_dict() and all(parameter.grad is not None for parameter in mix.parameters())


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_tensors_without_values_are_refused(kind):
    change = {"sparse": torch.Tensor.to_sparse, "meta": lambda tensor: tensor.to("meta")}[kind]
    with pytest.raises(DataError, match="got a tensor without values or a sparse one"):
        make()(change(torch.tensor(IDS)))
    with pytest.raises(DataError, match="lm_embeddings must be a dense tensor"):
        bilm.ScalarMix()(change(torch.ones(2, 3, 4, 5)))
