"""The dataset from Hugging Face, at one commit. Needs the extra `swebench-pro`, and a network."""

import os
from pathlib import Path

from terminalbench.errors import TbenchError, UserError


def download(dataset: str, revision: str, split: str) -> tuple[list[Path], str]:
    """The parquet files of a split in the local cache, and the commit that `revision` (a branch, a tag) stands for."""
    if not revision:
        raise UserError(
            "hf: names no revision", hint="a commit of the dataset, as in hf:7ab5114; hf:main is the newest"
        )
    try:
        from httpx import HTTPError
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError as error:
        raise UserError("hf: needs huggingface-hub", hint="pip install 'terminalbench[swebench-pro]'") from error
    where = f"hf:{revision}"
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        info = HfApi(endpoint=endpoint).dataset_info(dataset, revision=revision)
        listed = sorted(sibling.rfilename for sibling in info.siblings or ())
        wanted = [name for name in listed if name.endswith(".parquet") and Path(name).name.split("-")[0] == split]
        if not wanted or info.sha is None:
            raise UserError(f'{dataset} has no split "{split}" in parquet', where=where)
        return [
            Path(hf_hub_download(dataset, name, repo_type="dataset", revision=info.sha, endpoint=endpoint))
            for name in wanted
        ], info.sha
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError(f"{dataset} has no such revision, or may not be read", where=where) from error
    except (HfHubHTTPError, HTTPError, OSError) as error:
        problem = (str(error).strip() or type(error).__name__).split("\n")[0]
        hint = "download the parquet file elsewhere and name it instead"
        raise TbenchError(f"Hugging Face cannot be reached: {problem}", where=where, hint=hint) from error
