"""Classes with the names and fields of torchtitan's configuration, for the test of scripts/dump-torchtitan-config."""
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class TrainingConfig:
    num_tokens_per_microbatch_per_dp_rank: int = 16384
    num_tokens_per_train_step: int = -1
    max_context_length: int = 2048
    max_norm: float = 1.0
    steps: int = 10000
    enable_cpu_offload: bool = False
    dtype: str = "float32"
    mixed_precision_param: str = "bfloat16"
    mixed_precision_reduce: str = "float32"
    gc_freq: int = 50


@dataclass(kw_only=True, slots=True)
class ParallelismConfig:
    data_parallel_replicate_degree: int = 1
    data_parallel_shard_degree: int = -1
    fsdp_reshard_after_forward: str = "default"
    tensor_parallel_degree: int = 1
    enable_sequence_parallel: bool = True
    pipeline_parallel_degree: int = 1
    module_fqns_per_model_part: list | None = None
    pipeline_parallel_first_stage_less_layers: int = 1
    pipeline_parallel_last_stage_less_layers: int = 1
    pipeline_parallel_layers_per_stage: int | None = None
    pipeline_parallel_schedule: str = "1F1B"
    pipeline_parallel_schedule_csv: str = ""
    num_pp_microbatches: int = 1
    context_parallel_degree: int = 1
    expert_parallel_degree: int = 1


@dataclass(kw_only=True, slots=True)
class CompileConfig:
    enable: bool = False
    components: list = field(default_factory=lambda: ["model", "loss"])


@dataclass(kw_only=True, slots=True)
class DebugConfig:
    seed: int | None = None
    deterministic: bool = False


class SelectiveAC:
    @dataclass(kw_only=True, slots=True)
    class Config:
        preserve_rng_state: bool = True


class FullAC:
    @dataclass(kw_only=True, slots=True)
    class Config:
        preserve_rng_state: bool = True


@dataclass(kw_only=True, slots=True)
class ParamGroupConfig:
    pattern: str
    optimizer_name: str
    optimizer_kwargs: dict = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class OptimizerConfig:
    param_groups: list = field(default_factory=list)
    implementation: str = "fused"


@dataclass(kw_only=True, slots=True)
class SchedulerConfig:
    warmup_steps: int = 200
    decay_ratio: float | None = None
    decay_type: str = "linear"
    min_lr_factor: float = 0.0


@dataclass
class Float8Linear:
    width: int = 4096


@dataclass
class ModelSpec:
    name: str
    flavor: str
    model: object
    parallelize_fn: object = print


@dataclass(kw_only=True, slots=True)
class TrainerConfig:
    model_spec: ModelSpec | None = None
    hf_assets_path: str = "./tests/assets/tokenizer"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lr_scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    parallelism: ParallelismConfig = field(default_factory=ParallelismConfig)
    activation_checkpoint: object = None
    compile: CompileConfig = field(default_factory=CompileConfig)
    debug: DebugConfig = field(default_factory=DebugConfig)


def llama3_8b_fp8():
    adamw = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    return TrainerConfig(
        model_spec=ModelSpec("llama3", "8B", Float8Linear()),
        optimizer=OptimizerConfig(
            param_groups=[ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs=adamw)]),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=8192, num_tokens_per_train_step=1048576,
                                max_context_length=8192, steps=1000),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, pipeline_parallel_degree=4, num_pp_microbatches=8,
                                      pipeline_parallel_schedule="Interleaved1F1B"),
        activation_checkpoint=SelectiveAC.Config(),
        compile=CompileConfig(enable=True),
    )
