"""Apply, change and destroy a configuration with OpenTofu and azapi, signed in as a machine."""

import os
import pathlib
import shutil
import subprocess
import sys

TOFU, PROVIDER, FOLDER = sys.argv[1:]
sources = pathlib.Path(__file__).parent
folder = pathlib.Path(FOLDER)
shutil.copy(sources / "main.tf", folder)
# The provider is taken from its folder: nothing is downloaded.
settings = folder / "tofu.rc"
settings.write_text(f'provider_installation {{\n  dev_overrides {{ "azure/azapi" = "{PROVIDER}" }}\n  direct {{}}\n}}\n')
environment = dict(
    os.environ,
    TF_CLI_CONFIG_FILE=str(settings),
    TF_IN_AUTOMATION="1",
    CHECKPOINT_DISABLE="1",
    ARM_TENANT_ID=os.environ["GRIDHOOK_TEST_TENANT"],
    TF_VAR_url=os.environ["GRIDHOOK_URL"],
    TF_VAR_authority=os.environ["GRIDHOOK_TEST_AUTHORITY"],
    TF_VAR_audience=os.environ["GRIDHOOK_TEST_AUDIENCE"],
)


def tofu(*arguments):
    """What a command prints; one that fails, or finds a difference, ends the scenario."""
    command = [TOFU, *arguments, "-no-color"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


printed = tofu("apply", "-auto-approve")
assert "4 added, 0 changed, 0 destroyed" in printed, printed
assert "topics/tf-deployed" in tofu("output", "deployed"), "the deployment has outputs"
tofu("plan", "-detailed-exitcode")
other = ("-var", "team=b")
printed = tofu("apply", "-auto-approve", *other)
assert "0 added, 2 changed, 0 destroyed" in printed, printed
tofu("plan", "-detailed-exitcode", *other)
printed = tofu("destroy", "-auto-approve", *other)
assert "4 destroyed" in printed, printed
