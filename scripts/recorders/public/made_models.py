"""Make up what scripts of language, images and speech read from a hub."""

import json
import os
import subprocess
import sys
import wave
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
import torch

Draw = numpy.random.Generator
RATE = 22050  # samples of sound in a second
VOCABULARY = 512


def language_model(folder: Path, lines: list[str]) -> None:
    """Write a small Llama's configuration, weights and vocabulary."""
    tokenizers: Any = import_module("tokenizers")
    transformers: Any = import_module("transformers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(lines, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(folder)
    about = folder / "tokenizer_config.json"
    words_of = json.loads(about.read_text())
    words_of["tokenizer_class"] = "PreTrainedTokenizerFast"  # in all versions
    about.write_text(json.dumps(words_of))
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)


def autoencoder(folder: Path) -> None:
    """Write an autoencoder of images that is as Stable Diffusion's is."""
    models: Any = import_module("diffusers.models")
    blocks = 4
    torch.manual_seed(0)
    model = models.AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * blocks,
        up_block_types=["UpDecoderBlock2D"] * blocks,
        block_out_channels=[32] * blocks,
        layers_per_block=1,
        latent_channels=4,
    )
    model.save_pretrained(folder)


def sounds(folder: Path, draw: Draw) -> None:
    """Write a second of noise, eight times, and lists of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(8):
        samples = draw.integers(-9999, 9999, RATE).astype(numpy.int16)
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.tobytes())
    names = "\n".join(f"{number}|noise" for number in range(8))
    (folder / "list.txt").write_text(names + "\n")


def speech_config(source: Path, target: Path) -> None:
    """Write a configuration of HiFi-GAN with fewer channels."""
    config = json.loads(source.read_text())
    config |= {
        "batch_size": 2,
        "upsample_initial_channel": 32,
        "segment_size": 2048,
        "num_workers": 0,
    }
    target.write_text(json.dumps(config))


def documents(folder: Path, repository: Path, lines: list[str]) -> None:
    """Write texts as nanochat reads them, and let it make its vocabulary."""
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    data = folder / "base_data_climbmix"
    data.mkdir(parents=True, exist_ok=True)
    table = arrow.table({"text": lines})
    for number in range(2):
        file = data / f"shard_{number:05}.parquet"
        parquet.write_table(table, file, row_group_size=50)
    subprocess.run(
        [sys.executable, "-m", "scripts.tok_train", "--vocab-size=300"],
        cwd=repository,
        env={**os.environ, "NANOCHAT_BASE_DIR": str(folder)},
        check=True,
        capture_output=True,
    )


def picotron_config(target: Path, made: Path, base: Path) -> None:
    """Write a configuration of picotron, with tensors cut among two ranks."""
    config = json.loads(base.read_text())
    config["distributed"]["tp_size"] = 2
    config["model"] |= {
        "name": str(made / "llama"),
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "use_flash_attention": False,
        "use_fused_adam": False,
    }
    config["training"] |= {
        "total_train_steps": 3,
        "seq_length": 64,
        "micro_batch_size": 2,
        "num_samples": 200,
    }
    config["dataset"]["name"] = str(made / "lines")
    config["environment"] |= {"FLASH_ATTEN": "0", "HF_TOKEN": "none"}
    target.write_text(json.dumps(config))
