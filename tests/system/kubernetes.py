"""Manifests by the schemas of Kubernetes and of the MPI operator, unknown fields being errors: kubernetes.py OPERATOR.yaml MANIFEST ..."""
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.37"


def closed(schema):
    """The schema with no other fields than those that it names."""
    if isinstance(schema, list):
        for part in schema:
            closed(part)
    elif isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("anyOf", None), schema.pop("pattern", None), schema.pop("type", None)
        for part in schema.values():
            closed(part)
    return schema


def operator_schema(file):
    resource = next(d for d in yaml.safe_load_all(Path(file).read_text()) if d and d["kind"] == "CustomResourceDefinition")
    schema = next(v for v in resource["spec"]["versions"] if v["name"] == "v2beta1")["schema"]["openAPIV3Schema"]
    schema = closed(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def main():
    schema = operator_schema(sys.argv[1])
    seen = 0
    for file in sys.argv[2:]:
        for manifest in yaml.safe_load_all(Path(file).read_text()):
            seen += 1
            if manifest["kind"] != "MPIJob":
                kubernetes_validate.validate(manifest, VERSION, strict=True)
                print(f"{file}: {manifest['kind']} is valid")
                continue
            jsonschema.validate(manifest, schema)
            for name, replica in manifest["spec"]["mpiReplicaSpecs"].items():
                pod = {"restartPolicy": "Never", **replica["template"]["spec"]}
                kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}, VERSION, strict=True)
                print(f"{file}: MPIJob's pod of {name} is valid")
    if seen == 0:
        sys.exit("no manifest")


main()
