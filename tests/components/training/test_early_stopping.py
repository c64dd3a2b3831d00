"""Patience: it survives an end, windows of training are evaluations too, and numbers that are none end a job."""

from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

from hypothesis import given
from hypothesis import strategies as st
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.training.train_report import has_converged, lower_is_better
from ratchet.components.training.trainer_callbacks import (
    EarlyStopping,
    FiniteCheck,
    WindowEarlyStopping,
    best_evaluation_number,
)

pytestmark = pytest.mark.slow

ARGS = SimpleNamespace(output_dir="nowhere", num_iterations=1)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 4), st.booleans())
def test_early_stopping_stops_where_transformers_callback_would(values, patience, rises):
    figure = "accuracy" if rises else "loss"
    args = SimpleNamespace(metric_for_best_model=f"eval_{figure}", greater_is_better=rises, load_best_model_at_end=True)
    ours, theirs = EarlyStopping(patience, figure), EarlyStoppingCallback(patience)
    state, own, reference = TrainerState(), TrainerControl(), TrainerControl()
    for value in values:
        metrics = {f"eval_{figure}": value}
        state.log_history.append(metrics)
        ours.on_evaluate(args, state, own, metrics)
        theirs.on_evaluate(args, state, reference, metrics)
        if state.best_metric is None or (value > state.best_metric if rises else value < state.best_metric):
            state.best_metric = value
        assert own.should_training_stop == reference.should_training_stop
        ours = EarlyStopping(patience, figure)  # a job that went on has as much patience left


def test_only_losses_and_perplexities_improve_as_they_fall():
    assert (
        lower_is_better("loss")
        and lower_is_better("perplexity")
        and not lower_is_better("reward")
        and not lower_is_better("rewards/margins")
    )
    assert (best_evaluation_number([3, 1, 1, 2], "loss"), best_evaluation_number([3, 1, 3], "reward")) == (2, 1)


def steps(window, rewards, args=ARGS):
    """Runs a trainer's calls over those rewards; at which steps it saved, and at which it was told to end."""
    state, saved = TrainerState(), []
    window.on_train_begin(args, state, TrainerControl())
    for step, reward in enumerate(rewards, start=1):
        control, state.global_step = TrainerControl(), step
        window.on_step_end(args, state, control)
        state.log_history.append({"reward": reward, "step": step})
        window.on_log(args, state, control, {"reward": reward})
        saved += [step] if control.should_save else []
        if control.should_training_stop:
            return state, saved, step
    return state, saved, None


def test_the_best_window_of_training_is_kept_and_patience_ends_the_job():
    args = SimpleNamespace(output_dir="nowhere", num_iterations=1)
    state, saved, ended = steps(WindowEarlyStopping("reward", 2, 2), [0, 2, 3, 5, 4, 2, 1, 2, 9, 9], args)
    assert [entry["eval_reward"] for entry in state.log_history if "eval_reward" in entry] == [1, 4, 3, 1.5]
    assert (state.best_global_step, state.best_metric) == (4, 4)
    assert saved == [2, 4, 6, 8] and ended == 8 and args.load_best_model_at_end


def test_a_window_ends_only_with_a_whole_batch_of_episodes():
    _, saved, _ = steps(
        WindowEarlyStopping("reward", 2, 9), range(12), SimpleNamespace(output_dir="", num_iterations=3)
    )
    assert saved == [6, 12]


def test_an_unlogged_metric_for_early_stopping_is_an_error():
    with pytest.raises(ConfigurationError, match="is not a metric of this training"):
        steps(WindowEarlyStopping("success", 2, 2), [1, 2])


@pytest.mark.parametrize(("name", "said"), [("loss", "the loss became nan"), ("grad_norm", "the gradient became nan")])
def test_a_non_finite_number_is_reported_with_its_step(name, said):
    with pytest.raises(DataError, match=f"{said} by step 3; lower the learning rate"):
        FiniteCheck().on_log(ARGS, SimpleNamespace(global_step=3), None, {name: float("nan"), "epoch": 1})
    FiniteCheck().on_log(ARGS, SimpleNamespace(global_step=3), None, {"loss": 1.0, "reward": float("nan")})


def test_a_flat_validation_loss_is_convergence_only_where_the_training_loss_lies_below_it():
    flat = [0.3, 0.11, 0.109, 0.11]
    assert has_converged(flat, 2, train_loss=0.05)
    assert not has_converged(flat, 2, train_loss=0.108), "a plateau"
    assert not has_converged([0.3, 0.2, 0.1], 2, train_loss=0.05), "still falling"
    assert not has_converged([0.1], 2, train_loss=0.05) and not has_converged([], 1, train_loss=0.05)
