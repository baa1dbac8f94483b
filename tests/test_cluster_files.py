"""The files in contrib/clusters and contrib/docker, as far as they can be checked without a
cloud: schemas and a linter."""

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parent.parent
CLUSTERS, DOCKER = ROOT / "contrib" / "clusters", ROOT / "contrib" / "docker"
AWS = sorted(CLUSTERS.glob("aws-*.yaml"))
IMAGES = sorted(DOCKER.glob("*.Dockerfile"))
KUBERNETES = "1.33"


def pinned(name):
    return re.search(
        rf"^{name}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    ).group(1)


# ------------------------------------------------------------------ ray up


@pytest.fixture(params=AWS, ids=lambda path: path.stem)
def aws(request):
    return yaml.safe_load(request.param.read_text())


def checked(config):
    """What `ray up` checks before it asks the provider."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    logging.getLogger("ray").setLevel(logging.ERROR)
    prepared = prepare_config(config)
    validate_config(prepared)
    return prepared


def test_ray_takes_the_cluster_file(aws):
    prepared = checked(aws)
    assert prepared["available_node_types"][aws["head_node_type"]]["max_workers"] == 0
    assert prepared["head_start_ray_commands"] == aws["head_start_ray_commands"]


def test_ray_refuses_a_misspelt_cluster_file(aws):
    with pytest.raises(jsonschema.ValidationError):
        checked({**aws, "max_worker": 3})


def test_every_node_asks_for_a_token_and_sees_the_shared_storage(aws):
    assert "--env RAY_AUTH_MODE=token" in aws["docker"]["run_options"]
    assert "--volume /shared:/shared" in aws["docker"]["run_options"]
    assert aws["file_mounts"] == {"/home/ray/.ray/auth_token": "~/.ray/auth_token"}
    assert any(
        "mount -t nfs4" in each and each.endswith(" /shared")
        for each in aws["initialization_commands"]
    )
    assert any(
        f"fs-0123456789abcdef0.efs.{aws['provider']['region']}." in each
        for each in aws["initialization_commands"]
    )


def test_workers_are_spot_and_the_head_is_not(aws):
    for name, node in aws["available_node_types"].items():
        spot = node["node_config"].get("InstanceMarketOptions") == {"MarketType": "spot"}
        assert spot == (name != aws["head_node_type"])


def test_the_image_of_a_cluster_is_one_that_is_built_here(aws):
    tag = aws["docker"]["image"].rpartition(":")[2]
    assert (DOCKER / f"{tag}.Dockerfile").exists()
    gpus = [node["resources"].get("GPU", 0) for node in aws["available_node_types"].values()]
    assert any(gpus) == (tag == "gpu")


# ------------------------------------------------------------------ KubeRay


@pytest.fixture
def manifests():
    return {
        each["kind"]: each for each in yaml.safe_load_all((CLUSTERS / "kuberay.yaml").read_text())
    }


def groups(cluster):
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


def pod(group):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}


def test_kubernetes_takes_claim_policy_and_pods(manifests):
    cluster = manifests.pop("RayCluster")
    for each in [*manifests.values(), *map(pod, groups(cluster))]:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    assert set(manifests) == {"PersistentVolumeClaim", "NetworkPolicy"}


def test_a_misspelt_pod_would_be_refused(manifests):
    broken = pod(groups(manifests["RayCluster"])[0])
    broken["spec"] = {**broken["spec"], "container": []}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
PARAMETERS = {"type": "object", "additionalProperties": TEXT}


def closed(required, **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


RAY_CLUSTER = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=closed(["name"], name=TEXT),
    spec=closed(
        ["rayVersion", "headGroupSpec", "workerGroupSpecs"],
        rayVersion=TEXT,
        authOptions=closed(["mode"], mode={"enum": ["token"]}),
        enableInTreeAutoscaling={"type": "boolean"},
        autoscalerOptions=closed([], idleTimeoutSeconds=COUNT),
        headGroupSpec=closed(
            ["template"], serviceType={"const": "ClusterIP"}, rayStartParams=PARAMETERS, template={}
        ),
        workerGroupSpecs={
            "type": "array",
            "items": closed(
                ["groupName", "template"],
                groupName=TEXT,
                replicas=COUNT,
                minReplicas=COUNT,
                maxReplicas=COUNT,
                rayStartParams=PARAMETERS,
                template={},
            ),
        },
    ),
)
"""The fields of KubeRay's API reference (ray.io/v1) that the manifest uses."""


def test_the_ray_cluster_has_the_fields_of_kuberays_api(manifests):
    cluster = manifests["RayCluster"]
    jsonschema.validate(cluster, RAY_CLUSTER)
    assert cluster["spec"]["rayVersion"] == pinned("ray")
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_every_pod_sees_the_shared_volume_and_runs_an_image_that_is_built_here(manifests):
    claim = manifests["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for group in groups(manifests["RayCluster"]):
        spec = group["template"]["spec"]
        (container,), (volume,) = spec["containers"], spec["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/shared"}]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        tag = container["image"].rpartition(":")[2]
        assert (DOCKER / f"{tag}.Dockerfile").exists()
        assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (tag == "gpu")


def test_only_the_clusters_own_pods_reach_it(manifests):
    name = manifests["RayCluster"]["metadata"]["name"]
    own = {"podSelector": {"matchLabels": {"ray.io/cluster": name}}}
    policy = manifests["NetworkPolicy"]["spec"]
    assert policy == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}


# ------------------------------------------------------------------ images


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_hadolint_finds_nothing(path):
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    done = subprocess.run(
        [linter, "--no-color", str(path)], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_holds_every_distribution_of_the_workspace(path):
    text = path.read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    allowed = {
        line[1:]
        for line in path.with_name(f"{path.name}.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert set(copied) == allowed
    assert all((ROOT / each).exists() for each in copied)
    assert "./core ./toolkits/* ./plugins/* . " in text
    assert "--constraint constraints.txt" in text
    members = (
        re.search(r"^MEMBERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        .group(1)
        .split()
    )
    assert set(members) == {
        ".",
        "core",
        *(str(each.parent.relative_to(ROOT)) for each in ROOT.glob("toolkits/*/pyproject.toml")),
        *(str(each.parent.relative_to(ROOT)) for each in ROOT.glob("plugins/*/pyproject.toml")),
    }


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_runs_as_a_user_whose_home_the_cluster_files_name(path):
    text = path.read_text()
    assert "useradd --create-home --uid 1000 --shell /bin/bash ray" in text
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000"]
    assert re.findall(r"^WORKDIR (.*)$", text, re.MULTILINE)[-1] == "/home/ray"
    assert (
        f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-" in text
        or sys.version_info[:2] != (3, 11)
    )
