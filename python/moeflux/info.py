# SPDX-License-Identifier: MIT
"""What a checkpoint is, what an engine counts, what can compute: the library's structs as data."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._native import fields, ffi, filled, lib, new_error, text_of


@dataclass(frozen=True)
class LeftOut:
    """mf_left_out: a part of a checkpoint that is there and not run."""

    what: str
    names: str
    n_tensors: int
    n_bytes: int


@dataclass(frozen=True)
class ModelInfo:
    """mf_model_info: sizes in bytes unless named otherwise."""

    family: str
    form: str
    n_parameters: int
    n_vocab: int
    hidden_size: int
    n_context_tokens_model: int
    n_layers: int
    n_full_attention_layers: int
    n_linear_attention_layers: int
    n_latent_attention_layers: int
    n_moe_layers: int
    n_skipped_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    v_head_dim: int
    n_experts: int
    n_experts_per_token: int
    n_experts_per_token_model: int
    n_expert_groups: int
    n_expert_groups_per_token: int
    expert_bits: int
    expert_hidden_size: int
    shared_expert_hidden_size: int
    dense_hidden_size: int
    n_context_tokens: int
    n_chunk_tokens: int
    n_sessions: int
    page_tokens: int
    resident_bytes: int
    expert_bytes: int
    one_expert_bytes: int
    working_set_bytes: int
    scratch_bytes: int
    page_bytes: int
    recurrent_bytes: int
    session_bytes: int
    one_mark_bytes: int
    state_bytes: int
    mark_bytes: int
    ram_bytes: int
    floor_bytes: int
    n_slots: int
    slot_bytes: int
    available_bytes: int
    device: str
    expert_device: str
    device_floor_bytes: int
    expert_device_floor_bytes: int
    device_bytes: int
    device_why: str
    n_host_slots: int
    window_tokens: int
    window_page_bytes: int
    left_out: list[LeftOut]


@dataclass(frozen=True)
class Stats:
    """mf_stats: since the engine was opened, or reset_stats."""

    n_tokens: int
    n_expert_hits: int
    n_expert_misses: int
    n_reads: int
    read_bytes: int
    expert_bytes_touched: int
    weight_bytes_touched: int
    wait_us: int
    reading_us: int
    n_slots: int
    slot_bytes: int
    n_sessions: int
    state_bytes_used: int
    state_bytes_free: int
    mark_bytes_used: int
    n_hints: int
    n_hints_useful: int
    n_hints_late: int
    n_hints_cancelled: int
    n_hints_wasted: int
    n_queued: int
    device_bytes_taken: int
    n_expert_host_hits: int
    upload_bytes: int
    n_host_slots: int
    hint_bytes: int
    hint_wasted_bytes: int
    hint_saved_us: int
    hint_wasted_us: int
    stage_us: list[int]
    n_proposed: int
    n_kept: int
    proposes: int
    n_read_calls: int
    n_split_passes: int
    n_multiply_adds: int
    state_bytes_touched: int


@dataclass(frozen=True)
class DeviceInfo:
    """mf_device_info."""

    id: str
    kind: str
    name: str
    driver: str
    api: str
    lacks: str
    memory_bytes: int
    free_bytes: int
    shares_memory: int
    has_matrix_units: int
    tiers: str = ""
    n_paid_cpus: int = 0
    n_nodes: int = 0
    #: of mf_numa_use: "one-node", "used", "given", "forbidden", "uneven"
    numa_use: str = "one-node"


_NUMA_USES = ("one-node", "used", "given", "forbidden", "uneven")


def _device_info(values: dict[str, Any]) -> DeviceInfo:
    known = {name: values[name] for name in DeviceInfo.__dataclass_fields__}
    use = known["numa_use"]  # a later library may have more
    known["numa_use"] = _NUMA_USES[use] if use < len(_NUMA_USES) else str(use)
    return DeviceInfo(**known)


def model_info(struct: Any) -> ModelInfo:
    known = ModelInfo.__dataclass_fields__
    values: dict[str, Any] = {n: v for n, v in fields(struct).items() if n in known}
    parts = [fields(ffi.addressof(struct.left_out, i)) for i in range(struct.n_left_out)]
    values["left_out"] = [LeftOut(**part) for part in parts]
    return ModelInfo(**values)


def stats_of(engine: Any) -> Stats:
    known = Stats.__dataclass_fields__
    struct = filled("mf_stats", lambda out, size: lib.mf_engine_stats_sized(engine, out, size))
    return Stats(**{n: v for n, v in fields(struct).items() if n in known})


def devices() -> tuple[list[DeviceInfo], str]:
    """What can compute here, the CPU first; and why there is no GPU, or ""."""
    size, why = ffi.sizeof("mf_device_info"), new_error()
    n = lib.mf_device_list_sized(ffi.NULL, 0, size, why)
    out = ffi.new("mf_device_info[]", n)
    n = min(n, lib.mf_device_list_sized(out, n, size, why))
    listed = [_device_info(fields(ffi.addressof(out, i))) for i in range(n)]
    return listed, "" if why.code == 0 else text_of(why.message)
