"""What train and restart share: one road from text to checkpoints."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.changes import changes
from bilm.cli.progress import TrainingProgress
from bilm.cli.rehearsal import rehearse
from bilm.cli.stopping import STOPPED_STATUS, StopRequests
from bilm.cli.texts import read_text, steps_per_epoch
from bilm.cli.training_flags import TrainingFlags
from bilm.errors import CheckpointError, OptionsError
from bilm.json_object import JsonObject
from bilm.options import Decay, Options
from bilm.reasons import reason
from bilm.vocab import Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

    from bilm.batches import Batch, TrainingBatch
    from bilm.checkpoint import RunDirectory
    from bilm.cluster import Worker
    from bilm.metrics import HeldoutRecord
    from bilm.position import Position
    from bilm.run_state import RunState
    from bilm.training import Trainer
    from bilm.training_run import Plan, Validation
    from bilm.weights.files import CheckpointFile

_SLICE_TOKENS = 20_000  # of the training text, scored beside the heldout text


def make_strategy(n_gpus: int, worker: Worker) -> tf.distribute.Strategy:
    """Devices for the replicas; for a single one, wherever TensorFlow puts it.

    Raises:
        OptionsError: there are not so many GPUs.
    """
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if n_gpus > 1 and len(devices) < n_gpus:
        raise OptionsError(f"--n-gpus {n_gpus}: TensorFlow finds {len(devices)} GPUs on this machine")
    if worker.n_workers > 1:
        click.echo(f"worker {worker.index} of {worker.n_workers}: waiting for the others")
        tf.config.set_visible_devices(devices[:n_gpus], "GPU")
        return tf.distribute.MultiWorkerMirroredStrategy()
    if n_gpus == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(n_gpus)])


class Job:
    """A call of train or restart, its text read and its numbers known.

    Args:
        kind: the command's name.
        options: complete but for ``n_train_tokens``, which is filled in from the text.
        flags: of the command.
        vocabulary: of the model.
        freeze: see `bilm.training.Trainer`.

    Raises:
        DataError: the text cannot be read or is too small.
        OptionsError: there are not so many GPUs.
    """

    def __init__(
        self,
        kind: str,
        options: Options,
        flags: TrainingFlags,
        vocabulary: Vocabulary,
        freeze: str | None = None,
    ) -> None:
        from bilm.cluster import Worker

        self.kind = kind
        self.flags = flags
        self.freeze = freeze
        self.worker = Worker.from_environment()
        self.strategy = make_strategy(flags.n_gpus, self.worker)
        self.text = read_text(flags.prefixes, vocabulary)
        self.heldout = read_text(flags.heldout, vocabulary, "heldout") if flags.heldout else None
        self._warn_of_overlap()
        self.steps_per_epoch = steps_per_epoch(options, self.text, self.strategy.num_replicas_in_sync)
        n_steps = options.n_epochs * self.steps_per_epoch
        self.n_steps = min(n_steps, flags.max_steps or n_steps)
        n_train_tokens = options.n_train_tokens or self.text.counts.n_tokens
        self.options = dataclasses.replace(options, n_train_tokens=n_train_tokens)

    def _warn_of_overlap(self) -> None:
        train = {path.resolve() for path in self.text.files}
        for path in () if self.heldout is None else self.heldout.files:
            if path.resolve() in train:
                click.echo(
                    f"warning: {path} is heldout text and training text; its perplexity will not show "
                    "over-fitting",
                    err=True,
                )

    def settings(self, seed: int) -> dict[str, Any]:
        """What may not change when the call is resumed."""
        options = self.options.to_json()
        if self.options.learning_rate_decay in (Decay.LINEAR, Decay.COSINE):
            options["n_steps"] = self.n_steps
        del options["n_epochs"]  # alone it only says when to end
        flags = self.flags
        values = {
            "command": self.kind,
            "options": options,
            "--seed": seed,
            "--shuffle": flags.shuffle,
            "--shuffle-buffer": flags.shuffle_buffer,
            "--n-gpus": flags.n_gpus,
            "workers": self.worker.n_workers,
            "--jit": flags.jit,
            "--freeze": self.freeze,
            "--log-every": flags.log_every,
            "--train-prefix": self.text.sizes,
        }
        if self.heldout is not None:
            values |= {"--heldout-prefix": self.heldout.sizes, "--eval-every": flags.eval_every}
        return values

    def resumable(self, run: RunDirectory, checkpoint: CheckpointFile) -> RunState:
        """The state in a checkpoint of this very call.

        Raises:
            CheckpointError: it was written by another kind of call.
            OptionsError: something that decides about the numbers has changed; names all that has.
        """
        from bilm.run_state import read_state

        state = read_state(checkpoint)
        if state is None or state.settings.get("command") != self.kind:
            by = (
                "by bilm-tf or an older bilm" if state is None else f"by bilm {state.settings.get('command')}"
            )
            raise CheckpointError(
                f"{checkpoint.prefix}: written {by}, not by the bilm {self.kind} that is to be resumed; "
                "`bilm restart` goes on from it"
            )
        problems: list[str] = []
        settings = JsonObject("settings", state.settings, problems)
        seed = settings.take("--seed", "an integer", least=0, below=1 << 31)
        options = settings.take("options", "an object")
        if problems:
            raise CheckpointError(f"{checkpoint.prefix}: its state is damaged: {'; '.join(problems)}")
        now = self.settings(seed if self.flags.seed is None else self.flags.seed)
        before, after = {**state.settings, **options}, {**now, **now["options"]}
        del before["options"], after["options"]
        if found := changes(before, after):
            raise OptionsError(
                f"{run.path}: cannot be resumed with {', '.join(found)}; give what the call began with, or "
                "begin another with `bilm restart`"
            )
        return state

    def resume(self, run: RunDirectory, checkpoint: CheckpointFile) -> None:
        """Go on where an interrupted call stopped.

        Raises:
            CheckpointError: the checkpoint is none of this call's.
            OptionsError: see `resumable`.
        """
        from bilm.run_state import read_lstm_states

        state = self.resumable(run, checkpoint)
        trainer = self.make_trainer(state.settings["--seed"])
        run.restore(trainer.model, trainer.optimizer, checkpoint)
        states = read_lstm_states(checkpoint, trainer.states * self.worker.n_workers)
        own = self.worker.index * trainer.n_parts
        trainer.states = states[own : own + trainer.n_parts]
        trainer.loss_scale = state.loss_scale
        best = state.best
        click.echo(
            f"resuming: {checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of {self.n_steps:,} done "
            f"(epoch {state.n_done / self.steps_per_epoch:.2f})"
            + (
                ""
                if best is None
                else f", best heldout perplexity {best.perplexity:.4f} at step {best.step:,}"
            )
        )
        if self.flags.dry_run:
            rehearse(self, trainer)
        else:
            self.run(run, trainer, state)

    def begin(self, save_dir: Path, trainer: Trainer, first_step: int = 0, overwrite: bool = False) -> None:
        """Train in a new run directory, of which nothing is left if there is no checkpoint in the end."""
        from bilm.checkpoint import RunDirectory

        overwrite = overwrite or self.flags.resume  # there may be what a killed process left
        if not self.worker.is_chief:
            self.run(RunDirectory(save_dir, self.options), trainer, self.new_state(trainer, first_step))
            return
        run = RunDirectory.create(save_dir, self.options, self.text.vocabulary, overwrite)
        try:
            self.run(run, trainer, self.new_state(trainer, first_step))
        finally:
            run.discard_unsaved()

    def go_on(self, run: RunDirectory, trainer: Trainer, first_step: int) -> None:
        """Train on in a run directory that others trained in before."""
        from bilm.run_log import whole_lines

        state = self.new_state(trainer, first_step)
        state.log_bytes = whole_lines(run.path)
        self.run(run, trainer, state)

    def new_state(self, trainer: Trainer, first_step: int = 0) -> RunState:
        """The state of a call that begins."""
        from bilm.run_state import RunState

        return RunState(self.settings(trainer.seed), first_step)

    def new_seed(self) -> int:
        """The seed given, or one drawn.

        Raises:
            OptionsError: several workers would each draw another.
        """
        if self.flags.seed is not None:
            return self.flags.seed
        if self.worker.n_workers > 1:
            raise OptionsError("--seed: needed for a job of several workers, the same for all")
        seed = random.SystemRandom().randrange(2**31)
        click.echo(f"seed: {seed}")
        return seed

    def make_trainer(self, seed: int) -> Trainer:
        """A new model, ready to be trained."""
        import keras

        from bilm.batches import length_buckets
        from bilm.language_model import LanguageModel
        from bilm.training import Trainer

        keras.utils.set_random_seed(seed)
        with self.strategy.scope():
            model = LanguageModel(self.options, self.options.precision)
        cnn = self.options.char_cnn
        widths = () if cnn is None else length_buckets(cnn.max_characters_per_token, cnn.max_width)
        click.echo(f"model: {model.count_params():,} parameters, {self.options.n_tokens_vocab:,} words")
        return Trainer(model, widths, seed, self.strategy, self.worker, self.freeze, self.flags.jit)

    def run(self, run: RunDirectory, trainer: Trainer, state: RunState) -> None:
        """Train to the end of the schedule or until told to stop, which ends the process with status 75."""
        import tensorflow as tf

        from bilm.run_log import record_call
        from bilm.training_run import Outcome, TrainingRun

        until = None if self.flags.max_time is None else self.flags.started + self.flags.max_time
        command = click.get_current_context().find_root().meta["bilm.command"]
        if self.worker.is_chief:
            record_call(run.path, command, state.step, trainer.seed, self.options.to_json())
        click.echo(f"training: {self.n_steps:,} steps, {self.steps_per_epoch:,} an epoch")
        progress = TrainingProgress(self.steps_per_epoch, self.n_steps, self.options.use_sampling)
        with StopRequests(until) as stop, progress:
            training = TrainingRun(
                run,
                trainer,
                self.text.vocabulary,
                self._plan(),
                state,
                self._validation(trainer),
                stop,
                [progress],
                _tell_heldout,
            )
            try:
                outcome = training.train(lambda position: self.batches(trainer, state.first_step, position))
            except tf.errors.OpError as error:
                if self.worker.n_workers == 1:
                    raise
                raise CheckpointError(
                    f"worker {self.worker.index} lost the others ({reason(error)}); end what is left of the "
                    "job and start it again with --resume"
                ) from error
        best = state.best
        if outcome is Outcome.NO_GAIN:
            click.echo(f"stopped early: {state.n_without_gain} validations without a better perplexity")
        if best is not None:
            where = run.index.prefix(best.step)
            click.echo(f"best: heldout perplexity {best.perplexity:.4f} at step {best.step:,}, {where}")
        if outcome is Outcome.STOPPED:
            click.echo(f"stopped at step {state.step:,}: {stop.reason}; go on with --resume")
        click.echo(f"saved: {training.saved}" if training.saved else "nothing left to do")
        if outcome is Outcome.STOPPED:
            click.get_current_context().exit(STOPPED_STATUS)

    def _plan(self) -> Plan:
        from bilm.training_run import Plan

        flags = self.flags
        every = self.steps_per_epoch if flags.eval_every == "epoch" else int(flags.eval_every)
        return Plan(
            n_steps=self.n_steps,
            steps_per_epoch=self.steps_per_epoch,
            save_every=flags.save_every,
            keep=flags.keep,
            eval_every=None if self.heldout is None else every,
            patience=flags.patience,
            log_every=flags.log_every,
            histograms_every=flags.histograms_every,
        )

    def batches(
        self, trainer: Trainer, first_step: int, position: Position | None
    ) -> Iterator[TrainingBatch]:
        """The training text from a position, or from its beginning."""
        from bilm.batches import training_batches
        from bilm.prefetch import prefetch

        options = self.options
        return prefetch(
            training_batches(
                self.text.files,
                self.text.vocabulary,
                batch_size=options.batch_size,
                unroll_steps=options.unroll_steps,
                bidirectional=options.bidirectional,
                max_filter_width=options.max_filter_width,
                n_replicas=trainer.n_parts,
                shuffle=self.flags.shuffle,
                seed=trainer.seed + first_step,  # a restart does not read the text in the order of its run
                shuffle_buffer=self.flags.shuffle_buffer,
                start=position,
                part=(self.worker.index, self.worker.n_workers),
            )
        )

    def _validation(self, trainer: Trainer) -> Validation | None:
        from bilm.evaluation import Evaluator
        from bilm.training_run import Validation

        if self.heldout is None:
            return None
        heldout = self.heldout.files
        return Validation(
            Evaluator(trainer.model),
            lambda: self._evaluation_batches(heldout),
            lambda: self._evaluation_batches(self.text.files, _SLICE_TOKENS),
        )

    def _evaluation_batches(self, files: Sequence[Path], max_tokens: int | None = None) -> Iterator[Batch]:
        from bilm.batches import evaluation_batches
        from bilm.prefetch import prefetch

        options = self.options
        return prefetch(
            evaluation_batches(
                files,
                self.text.vocabulary,
                batch_size=options.batch_size,
                unroll_steps=options.unroll_steps,
                bidirectional=options.bidirectional,
                max_filter_width=options.max_filter_width,
                max_tokens=max_tokens,
            )
        )


def _tell_heldout(record: HeldoutRecord) -> None:
    parts = [f"forward {record.forward_perplexity:.4f}"]
    if record.backward_perplexity is not None:
        parts.append(f"backward {record.backward_perplexity:.4f}")
    click.echo(
        f"step {record.step}  epoch {record.epoch:.2f}  heldout perplexity {record.perplexity:.4f} "
        f"({', '.join(parts)}), training slice {record.train_perplexity:.4f}"
        + ("  best" if record.best else "")
    )
