"""What scripts written for Accelerate import and call is there, under the same names."""

import importlib
import importlib.util
import os
import pickle
from pathlib import Path

import crosstrain
import pytest
from crosstrain import Accelerator, DataLoaderConfiguration, utils
from torch import nn


def words(text: str) -> list[str]:
    return text.split()


NAMES = {
    "crosstrain": """Accelerator PartialState skip_first_batches notebook_launcher debug_launcher
        DataLoaderConfiguration DistributedType DistributedDataParallelKwargs GradScalerKwargs
        InitProcessGroupKwargs AutocastKwargs find_executable_batch_size synchronize_rng_states
        FullyShardedDataParallelPlugin ProfileKwargs DDPCommunicationHookType load_checkpoint_in_model
        is_rich_available""",
    "crosstrain.accelerator": "Accelerator DataLoaderConfiguration GradientAccumulationPlugin",
    "crosstrain.utils": """set_seed ProjectConfiguration GradientAccumulationPlugin gather gather_object reduce
        broadcast broadcast_object_list pad_across_processes send_to_device DistributedType
        find_executable_batch_size LoggerType tqdm DistributedDataParallelKwargs InitProcessGroupKwargs
        DataLoaderConfiguration FullyShardedDataParallelPlugin ProfileKwargs AutocastKwargs GradScalerKwargs
        DDPCommunicationHookType PrecisionType RNGType DynamoBackend TorchDynamoPlugin KwargsHandler
        release_memory clear_device_cache convert_to_fp32 extract_model_from_parallel wait_for_everyone save load
        patch_environment
        synchronize_rng_state synchronize_rng_states load_checkpoint_in_model is_wandb_available
        is_tensorboard_available is_cuda_available is_xpu_available is_npu_available is_mps_available
        is_bf16_available is_fp16_available is_torch_xla_available is_datasets_available is_transformers_available
        is_deepspeed_available is_rich_available""",
    "crosstrain.utils.operations": "gather gather_object broadcast reduce pad_across_processes send_to_device",
    "crosstrain.utils.dataclasses": "DistributedType ProjectConfiguration DataLoaderConfiguration",
    "crosstrain.utils.random": "set_seed synchronize_rng_states",
    "crosstrain.utils.memory": "find_executable_batch_size release_memory",
    "crosstrain.utils.imports": "is_wandb_available is_bf16_available",
    "crosstrain.state": "PartialState AcceleratorState GradientState is_initialized",
    "crosstrain.logging": "get_logger",
    "crosstrain.tracking": """GeneralTracker TensorBoardTracker WandBTracker MLflowTracker CometMLTracker ClearMLTracker
        AimTracker DVCLiveTracker TrackioTracker on_main_process filter_trackers get_available_trackers
        register_tracker_class""",
    "crosstrain.local_sgd": "LocalSGD",
    "crosstrain.launchers": "notebook_launcher debug_launcher",
}

MEMBERS = words("""prepare prepare_evaluation merge prepare_model prepare_optimizer prepare_data_loader prepare_scheduler backward accumulate
    sync_gradients gradient_accumulation_steps no_sync autocast clip_grad_norm_ clip_grad_value_ unscale_gradients
    gather gather_for_metrics reduce pad_across_processes is_main_process is_local_main_process is_last_process
    process_index local_process_index num_processes device distributed_type use_distributed mixed_precision print
    wait_for_everyone main_process_first local_main_process_first on_main_process on_local_main_process
    on_last_process on_process on_local_process split_between_processes unwrap_model get_state_dict save save_model
    save_state load_state register_for_checkpointing register_save_state_pre_hook register_load_state_pre_hook
    skip_first_batches free_memory clear optimizer_step_was_skipped set_trigger check_trigger init_trackers log
    get_tracker end_training trackers log_with project_dir logging_dir state gradient_state scaler step
    project_configuration save_iteration even_batches split_batches dispatch_batches non_blocking
    use_seedable_sampler use_stateful_dataloader rng_types device_placement native_amp profile
    torch_device_mesh parallelism_config
    step_scheduler_with_optimizer _models _optimizers _schedulers _dataloaders _custom_objects""")

# Names of Accelerate's that can be imported and say what to use instead, with a word of it.
ELSEWHERE = {
    "DeepSpeedPlugin": "FullyShardedDataParallelPlugin",
    "DummyOptim": "FullyShardedDataParallelPlugin",
    "DummyScheduler": "FullyShardedDataParallelPlugin",
    "MegatronLMPlugin": "torchtitan",
    "prepare_pippy": "torch.distributed.pipelining",
    "init_empty_weights": "install accelerate",
    "dispatch_model": "install accelerate",
    "cpu_offload": "install accelerate",
    "infer_auto_device_map": "install accelerate",
    "FP8RecipeKwargs": "bf16",
}
MEMBERS_ELSEWHERE = words("""deepspeed_plugin lomo_backward fp8_backend maybe_context_parallel tensor_parallel_rank
    pipeline_parallel_rank context_parallel_rank deepspeed_ulysses_dl_adapter _prepare_megatron_lm _prepare_msamp
    _prepare_te _prepare_ao join_uneven_inputs trigger_sync_in_backward log_images""")


@pytest.mark.parametrize("module", NAMES)
def test_names_can_be_imported(module: str) -> None:
    there = importlib.import_module(module)
    assert not [name for name in words(NAMES[module]) if not hasattr(there, name)]


def test_an_accelerator_has_its_members() -> None:
    accelerator = Accelerator(cpu=True)
    assert not [name for name in MEMBERS if not hasattr(accelerator, name)]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_not_ours_names_the_alternative(name: str) -> None:
    if "accelerate" in ELSEWHERE[name] and importlib.util.find_spec("accelerate"):
        pytest.skip("accelerate is installed here, and serves these names")
    assert getattr(importlib.import_module("crosstrain.utils"), name) is not None
    with pytest.raises(NotImplementedError, match=ELSEWHERE[name]):
        getattr(crosstrain, name)()


@pytest.mark.parametrize("name", MEMBERS_ELSEWHERE)
def test_members_that_are_not_ours_say_so(name: str) -> None:
    accelerator = Accelerator(cpu=True)
    assert not hasattr(accelerator, name)  # libraries ask so
    with pytest.raises(NotImplementedError, match=f"Accelerator.{name} is not part of crosstrain: .{{10}}"):
        getattr(accelerator, name)


def test_an_unknown_name_is_an_error_of_the_usual_kind() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Accelerater'"):
        exec("from crosstrain import Accelerater")
    with pytest.raises(AttributeError, match="'Accelerator' object has no attribute 'preparre'"):
        _ = Accelerator(cpu=True).preparre


def test_an_accelerator_can_be_pickled() -> None:
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    accelerator.prepare(nn.Linear(1, 1))
    again = pickle.loads(pickle.dumps(accelerator))
    assert again.even_batches is False
    assert again._models == []
    assert again.prepare(nn.Linear(1, 1)) is not None


def test_small_functions_of_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OF_THIS_TEST", raising=False)
    model = nn.Linear(1, 1)
    assert utils.extract_model_from_parallel(Accelerator(cpu=True).prepare(model)) is model
    with utils.patch_environment(of_this_test=1):
        assert os.environ["OF_THIS_TEST"] == "1"
    assert "OF_THIS_TEST" not in os.environ
    utils.save(model.state_dict(), tmp_path / "weights")
    utils.wait_for_everyone()
    assert set(utils.load(tmp_path / "weights")) == {"weight", "bias"}
