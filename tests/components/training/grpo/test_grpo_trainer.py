"""Every option of GRPO is read, and does to a batch what it says: credit by token, selection, what another policy sampled."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from grpo_batches import EPISODES, REWARDS, our_trainer, sample, samples  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from tiny_models import ExactHead, gradients, log_probabilities, tiny_model, tiny_tokenizer  # noqa: E402
from training_jobs import make_job  # noqa: E402

from ratchet.components.core import ConfigurationError, DataError, PlayableTask  # noqa: E402
from ratchet.components.training.config.method_sections import CorrectionOptions, GrpoOptions, GrpoSamplingOptions  # noqa: E402
from ratchet.components.training.credit.credit_options import CreditOptions  # noqa: E402
from ratchet.components.training.format.training_row import TrainingRow  # noqa: E402
from ratchet.components.training.grpo.attempt_selection import SelectionOptions  # noqa: E402
from ratchet.components.training.grpo.failed_groups import negative_log_likelihood  # noqa: E402
from ratchet.components.training.grpo.task_sampler import TaskSampler  # noqa: E402
from ratchet.components.training.grpo.train_grpo import count_steps, trl_arguments  # noqa: E402


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setattr("trl.trainer.utils._ChunkedLogProbFunction", ExactHead)


def batch_of(folder, batch, *, credit=None, selection=None, demonstrations=None, **changes):
    """The trainer, and the batch that it would train on."""
    task_sampler = None
    if selection is not None:
        tasks = [PlayableTask(each.task_id, each.family, each.kind) for each in batch]
        task_sampler = TaskSampler(SelectionOptions(**selection), tasks, 0, demonstrations)
    trainer = our_trainer(
        tiny_model(), tiny_tokenizer(), folder, batch, credit=credit, task_sampler=task_sampler, **changes
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer, trainer._generate_and_score_completions([{"prompt": "t"} for _ in batch])


def plain(rewards):
    table = torch.tensor(rewards, dtype=torch.float64).view(2, 4)
    return ((table - table.mean(1, keepdim=True)) / (table.std(1, keepdim=True) + 1e-4)).view(-1)


def test_broadcast_gives_every_token_of_the_policy_the_episode_s_advantage(tmp_path):
    _, output = batch_of(tmp_path, samples(), credit=CreditOptions(token_weights=("entropy_topk",), keep=1.0))
    own = output["completion_mask"] * output["tool_mask"]
    wanted = plain(REWARDS)[:, None] * own
    assert torch.allclose(output["advantages"].double(), wanted, atol=1e-6)


def test_a_token_s_advantage_is_that_of_its_turn(tmp_path):
    scores = [[0.9, 0.1], [0.5], [0.2, 0.4, 0.9], [0.5], [0.6, 0.1], [0.9, 0.8], [0.5], [0.2, 0.4]]
    batch = [
        replace(each, breakdown=replace(each.breakdown, turns=own)) for each, own in zip(samples(), scores, strict=True)
    ]
    _, output = batch_of(tmp_path, batch, credit=CreditOptions(turns="step_level"))
    first = output["advantages"][0]
    advantage = plain(REWARDS)[0].item()
    assert first[:3].tolist() == pytest.approx([advantage * 0.9 / 0.5] * 3, rel=1e-5)
    assert first[3:5].tolist() == [0.0, 0.0]
    assert first[5:7].tolist() == pytest.approx([advantage * 0.1 / 0.5] * 2, rel=1e-5)
    assert first[7:].tolist() == [0.0] * 3


def test_regions_of_a_reply_weigh_as_the_schedule_says_with_a_mean_of_one(tmp_path):
    schedule = {"start": {"reasoning": 2.0, "format": 1.0}, "end": {"reasoning": 2.0, "format": 1.0}, "steps": 1}
    _, output = batch_of(
        tmp_path, samples(), credit=CreditOptions(token_weights=("region_schedule",), regions=schedule)
    )
    own = (output["completion_mask"] * output["tool_mask"]).bool()
    for row, advantage in enumerate(plain(REWARDS).tolist()):
        found = output["advantages"][row][own[row]].double()
        assert found.mean().item() == pytest.approx(advantage, abs=1e-5)
        if advantage:
            assert found.abs().max() > 1.2 * found.abs().min()  # w1 is the end token: form


def test_only_the_tokens_with_most_entropy_and_advantage_are_kept(tmp_path):
    _, output = batch_of(tmp_path, samples(), credit=CreditOptions(token_weights=("entropy_topk",), keep=0.25))
    own = output["completion_mask"] * output["tool_mask"]
    assert int((output["advantages"] != 0).sum()) == math.ceil(0.25 * int(own.sum()))


def of_agents(*names):
    """Episodes in which each turn is one of these agents', in their order, with a score of its own."""
    found = []
    for place, each in enumerate(samples()):
        count = max(each.tokens.turns) + 1
        breakdown = replace(each.breakdown, turns=[0.1 * (place + turn) for turn in range(count)])
        agents = tuple(names[turn % len(names)] for turn in range(count))
        found.append(replace(each, breakdown=breakdown, agents=agents))
    return found


def test_each_agent_is_normalised_among_its_own_turns(tmp_path):
    batch = of_agents("planner", "coder")
    turn_rewards = [[*each.breakdown.turns, 0.0, 0.0][:3] for each in batch]
    _, output = batch_of(tmp_path, batch, credit=CreditOptions(turns="per_role"))
    returns = {
        (row, turn): sum(turn_rewards[row][turn : len(each.agents)]) + REWARDS[row]
        for row, each in enumerate(batch)
        for turn in range(len(each.agents))
    }
    for row, each in enumerate(batch):
        for place, turn in enumerate(each.tokens.turns):
            if turn < 0:
                continue
            peers = [key for key in returns if key[0] // 4 == row // 4 and key[1] % 2 == turn % 2]
            values, episodes = [returns[key] for key in peers], len({key[0] for key in peers})
            mean = math.fsum(values) / len(values)
            variance = math.fsum((value - mean) ** 2 for value in values) / len(values) * episodes / (episodes - 1)
            wanted = (returns[row, turn] - mean) / (math.sqrt(variance) + 1e-4)
            assert output["advantages"][row][place].item() == pytest.approx(wanted, abs=1e-5)
    _, alone = batch_of(tmp_path, of_agents("one"), credit=CreditOptions(turns="per_role"))
    _, pooled = batch_of(tmp_path, of_agents("one"), credit=CreditOptions(turns="turn_sum_norm"))
    assert torch.equal(alone["advantages"], pooled["advantages"])
    assert not torch.allclose(alone["advantages"], output["advantages"], atol=0.1)


def test_unknown_roles_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="'per_role' needs roles"):
        batch_of(tmp_path, samples(), credit=CreditOptions(turns="per_role"))


def test_progress_adds_what_each_turn_did_to_the_chance_of_success(tmp_path):
    batch = samples()
    with pytest.raises(ConfigurationError, match=r"'progress' needs values"):
        batch_of(tmp_path, batch, credit=CreditOptions(turns="progress"))
    seen = [
        replace(each, breakdown=replace(each.breakdown, chances=[0.9] * (max(each.tokens.turns) + 1))) for each in batch
    ]
    _, output = batch_of(tmp_path, seen, credit=CreditOptions(turns="progress"))
    mean = sum(REWARDS[:4]) / 4
    advantage = plain(REWARDS)[0].item()
    first = output["advantages"][0]
    assert first[:3].tolist() == pytest.approx([advantage + 0.9 - mean] * 3, rel=1e-5)
    assert first[5:7].tolist() == pytest.approx([advantage + REWARDS[0] - 0.9] * 2, rel=1e-5)


def test_a_group_outside_the_band_trains_nothing_and_the_others_are_untouched(tmp_path):
    rewards = [1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 0.75, 0.0]
    _, output = batch_of(tmp_path, samples(rewards), selection={"accuracy_band": {}})
    _, whole = batch_of(tmp_path, samples(rewards))
    assert output["tool_mask"][:4].sum() == 0 and output["advantages"][:4].abs().sum() == 0
    assert torch.equal(output["advantages"][4:], whole["advantages"][4:])
    assert torch.equal(output["tool_mask"][4:], whole["tool_mask"][4:])
    assert output["num_items_in_batch"] == (whole["completion_mask"] * whole["tool_mask"])[4:].sum()


def test_the_subset_of_most_variance_keeps_its_advantages_as_they_were(tmp_path):
    """To normalise again after selection would take the selection back."""
    _, output = batch_of(tmp_path, samples(), selection={"max_variance": 0.5})
    _, whole = batch_of(tmp_path, samples())
    kept = output["advantages"] != 0
    assert int(kept.sum()) == 4
    assert torch.equal(output["advantages"][kept], whole["advantages"][kept])
    assert output["advantages"][kept].std() > 1.1 * whole["advantages"].std()


def test_what_is_not_known_is_no_draw_of_its_family_and_none_of_the_share_that_is_kept(tmp_path):
    batch = [replace(each, family=f"f{place // 4}") for place, each in enumerate(samples([None] * 3 + REWARDS[3:]))]
    trainer, output = batch_of(tmp_path, batch, selection={"max_variance": 0.4, "curriculum_ucb": {}})
    assert trainer.task_sampler._families.draws == {"f0": 1, "f1": 4}
    assert int((output["advantages"] != 0).sum()) == 2 and output["advantages"][:4].abs().sum() == 0
    assert trainer._metrics["train"]["rollout/lost"] == [3 / 8]


def test_a_replayed_success_gives_a_silent_group_a_gradient_and_its_ratio_is_to_what_sampled_it(tmp_path):
    silent = [0.0] * 4
    batch = samples([*silent, *REWARDS[4:]])
    trainer, output = batch_of(tmp_path, batch)
    assert output["advantages"][:4].abs().sum() == 0 and "old_per_token_logps" not in output
    batch[3] = replace(sample(*EPISODES[0], 1.0), staleness=7)
    trainer, output = batch_of(tmp_path, batch)
    assert output["advantages"][:4].abs().min() > 0
    old, sampled = output["old_per_token_logps"], output["sampling_per_token_logps"]
    assert torch.equal(old[3].float(), sampled[3].float())
    assert not torch.allclose(old[0].float(), sampled[0].float(), atol=1e-3)
    model = tiny_model()
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
    own = (output["completion_mask"] * output["tool_mask"]).bool()
    found = log_probabilities(model, ids, mask)[:, output["prompt_ids"].shape[1] - 1 :]
    assert torch.allclose(old[:3][own[:3]], found[:3][own[:3]].to(old), atol=1e-6)
    assert trainer._metrics["train"]["replay/staleness"] == [7.0]


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_a_correction_weighs_what_a_server_sampled_as_trl_weighs_what_its_own_vllm_did(tmp_path, mode):
    trainer, plainly = batch_of(tmp_path, samples())
    trainer.trust_sampler, trainer.correction = False, CorrectionOptions(mode=mode, clip_min=0.02, clip_max=0.5)
    output = trainer._generate_and_score_completions([{"prompt": "t"} for _ in samples()])
    own, mask = output["old_per_token_logps"], output["completion_mask"] * output["tool_mask"]
    difference = (own - output["sampling_per_token_logps"]) * mask
    ratio = torch.exp(difference.sum(-1, keepdim=True) if mode.startswith("sequence") else difference)
    outside = (ratio < 0.02) | (ratio > 0.5)
    assert outside.any(), "the bounds of this test must touch something"
    ratio = ratio.clamp(0.02, 0.5) if mode.endswith("truncate") else ratio.masked_fill(outside, 0.0)
    ours = trainer._compute_loss(trainer.model, output)
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    theirs = {**plainly, "old_per_token_logps": own, "importance_sampling_ratio": ratio}
    assert ours.item() == pytest.approx(trainer._compute_loss(trainer.model, theirs).item(), rel=1e-6)


def test_a_correction_has_the_names_of_trl_s_arguments(tmp_path):
    given = {"mode": "sequence_mask", "clip_max": 2.0, "clip_min": 0.5}
    found = trl_arguments(make_job("grpo", output=tmp_path, base="x", correction=given), tiny_tokenizer())
    assert {
        name.removeprefix("vllm_importance_sampling_"): value for name, value in found.items() if "vllm" in name
    } == {
        "correction": True,
        **given,
    }
    off = trl_arguments(make_job("grpo", output=tmp_path, base="x", correction={"mode": "none"}), tiny_tokenizer())
    assert off["vllm_importance_sampling_correction"] is False


@pytest.mark.parametrize("accumulation", [4])
def test_a_lesson_is_sft_s_loss_beside_grpo_s_once(tmp_path, accumulation):
    row = TrainingRow([7, 8, 9, 11, 12, 1], [-100, -100, -100, 11, 12, 1], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    batch = samples([0.0, 0.0, 0.0, 0.0, *REWARDS[4:]])
    trainer, output = batch_of(tmp_path, batch, selection={"relift": 1}, demonstrations={"t": [row]})
    trainer.current_gradient_accumulation_steps = accumulation
    without = trainer._compute_loss(trainer.model, output)
    trainer.task_sampler.collect_hard_tasks(batch, size=4, first=0)
    assert trainer.task_sampler.due_demonstrations == [[row]]
    with_lesson = trainer._compute_loss(trainer.model, output)
    alone = tiny_model()
    logits = torch.log_softmax(alone(torch.tensor([row.input_ids])).logits[0, 2:5], -1)
    wanted = -logits.gather(-1, torch.tensor(row.input_ids[3:])[:, None]).mean()
    assert (with_lesson - without).item() == pytest.approx(wanted.item(), abs=1e-9)
    assert trainer._compute_loss(trainer.model, output).item() == pytest.approx(without.item(), abs=1e-12)
    loss = negative_log_likelihood(alone, [row, row], 0)
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-12)
    loss.backward()
    assert max(each.abs().max() for each in gradients(alone).values()) > 0


def test_a_run_whose_advantages_tell_nothing_is_refused(tmp_path):
    trainer = our_trainer(tiny_model(), tiny_tokenizer(), tmp_path, samples([0.5] * 8), signal_window=2)
    with pytest.raises(DataError, match="did not differ in 2 steps"):
        trainer.train()
    assert trainer.state.global_step == 1


MEANT = {
    "group_size": (4, "num_generations"),
    "loss": ("bnpo", "loss_type"),
    "importance": ("sequence", "importance_sampling_level"),
    "scale_rewards": ("none", "scale_rewards"),
    "clip": (0.1, "epsilon"),
    "clip_high": (0.3, "epsilon_high"),
    "beta": (0.25, "beta"),
    "unbiased_kl": (False, "use_bias_correction_kl"),
    "updates": (3, "num_iterations"),
    "temperature": (0.7, "temperature"),
    "top_p": (0.9, "top_p"),
    "max_episode_tokens": (77, "max_completion_length"),
}
ELSEWHERE = {"reward", "scoring", "credit", "selection", "signal_window", "sampling", "player", "play", "offline"}
ELSEWHERE |= {"max_new_tokens", "sampler", "server", "step_model", "correction", "asynchronous", "share_prefixes"}


@pytest.mark.parametrize("name", MEANT)
def test_an_option_becomes_trl_s(name, tmp_path):
    value, theirs = MEANT[name]
    changes = {"sampling": {name: value}} if name in GrpoSamplingOptions.model_fields else {name: value}
    config = make_job("grpo", output=tmp_path, base="x", batch_size=8, **changes)
    assert trl_arguments(config, tiny_tokenizer())[theirs] == value


def test_no_option_is_forgotten():
    assert MEANT.keys() | ELSEWHERE == GrpoOptions.model_fields.keys() | GrpoSamplingOptions.model_fields.keys()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"group_size": 1}, "group_size"),  # a group of one has no deviation
        ({"loss": "cispo", "clip_high": 0.3}, "largest ratio"),
        ({"sampling": {"server": "http://127.0.0.1:1"}}, "sampler: vllm"),
        ({"sampling": {"sampler": "vllm"}}, "sampler: vllm"),
        ({"grup_size": 4}, "group_size"),
        ({"credit": {"turns": "progress"}}, "needs step_model"),
        ({"credit": {"advantage": "leave_one_out"}, "scale_rewards": "group"}, "means scale_rewards: none"),
        ({"credit": {"advantage": "batch_std"}, "scale_rewards": "none"}, "means scale_rewards: batch"),
    ],
)
def test_invalid_settings_give_a_one_line_error(changes, why, tmp_path):
    from ratchet.components.training.config.job_config import load_job

    with pytest.raises(ConfigurationError, match=why):
        load_job({"method": "grpo", "output": str(tmp_path), "grpo": changes})


@pytest.mark.parametrize(
    ("advantage", "scale"), [("broadcast", "group"), ("leave_one_out", "none"), ("batch_std", "batch")]
)
def test_an_estimator_that_defines_its_divisor_brings_it(advantage, scale):
    grpo = GrpoOptions.load({"credit": {"advantage": advantage}})
    assert grpo.scale_rewards == scale and GrpoOptions.load(grpo.model_dump()) == grpo


def test_cispo_cuts_ratios_at_five_where_nothing_else_is_said(tmp_path):
    config = make_job("grpo", output=tmp_path, base="x", loss="cispo")
    assert trl_arguments(config, tiny_tokenizer())["epsilon_high"] == 5.0


def test_an_epoch_plays_every_task_once_and_learns_as_often_as_it_updates(tmp_path):
    def steps(tasks, **changes):
        settings = {"batch_size": 16, "group_size": 4, "steps": None, "epochs": 1} | changes
        return count_steps(make_job("grpo", output=tmp_path, base="x", **settings), tasks)

    assert steps(40) == 10
    assert steps(40, updates=4) == 40
    assert steps(3) == 1  # fewer tasks than a batch has groups
    assert steps(40, epochs=0.5) == 5 and steps(40, epochs=2, steps=7) == 7
    assert steps(40, epochs=None, steps=9) == 9
