#!/usr/bin/env python3
"""What can be checked of compose.yaml without an engine: docker-compose reads it where there is one, the
paths that it mounts exist, ports are published to this machine alone, images are pinned, the ranks make
one job, and Prometheus scrapes each of them and finds rules, Alertmanager and its own configuration.

    compose_check.py SOURCE_DIRECTORY
"""
import pathlib
import re
import shutil
import subprocess
import sys


def services(text):
    """Name to the lines of each service."""
    body = text.partition("\nservices:\n")[2].partition("\nnetworks:")[0]
    return dict(re.findall(r"^  ([a-z0-9-]+):\n((?:(?:    .*)?\n)*)", body + "\n", re.M))


def check_service(source, name, text, names):
    for host in re.findall(r"- (\.[^:]*):/", text):
        if not (source / "docker" / host).exists():
            yield f"{name} mounts {host}, which is not in the repository"
    for mount in re.findall(r"- \./\S+|- \.\./\S+", text):
        if not mount.endswith(":ro"):
            yield f"{name} may write to {mount[2:]}"
    published = re.findall(r'ports: \["([^"]*)"\]', text)
    if not published or not all(port.startswith("127.0.0.1:") for port in published):
        yield f"{name} publishes {published}, not to this machine alone"
    for other in re.findall(r"depends_on: \[([^\]]*)\]", text):
        if other not in names:
            yield f"{name} depends on {other}, which there is not"
    image = re.search(r"image: (\S+)", text)
    if image and not re.search(r":v?\d+\.\d+\.\d+$", image[1]):
        yield f"{name}: {image[1]} is not one version"
    if not image and "<<: *rank" not in text:
        yield f"{name} has no image"


def check_ranks(all_services, scrape):
    ranks = {name: text for name, text in all_services.items() if name.startswith("rank-")}
    for name, text in ranks.items():
        number = name.partition("-")[2]
        if f'RANK: "{number}"' not in text or f'WORLD_SIZE: "{len(ranks)}"' not in text:
            yield f"{name} is told another rank, or another size of the job"
        labels = re.search(rf"targets: \[{name}:10064\]\n +labels: \{{([^}}]*)\}}", scrape)
        expected = f'rank: "{number}"', f'world_size: "{len(ranks)}"', "job_id: demo", f"host: {name}"
        if not labels or not all(label in labels[1] for label in expected):
            yield f"{name} is not scraped under its labels"
    if len(ranks) != 4:
        yield f"{len(ranks)} ranks"


def check(source, text, scrape):
    found = services(text)
    for name, body in found.items():
        yield from check_service(source, name, body, found)
    for name in ("prometheus", "alertmanager", "grafana"):
        if name not in found:
            yield f"there is no {name}"
    yield from check_ranks(found, scrape)
    if "alertmanager:9093" not in scrape:
        yield "Prometheus does not know the Alertmanager"


def same_job(source, scrape):
    """The scrape job is the shipped one but for where its targets come from."""
    shipped = (source / "configs/prometheus/file_sd.yml").read_text()
    for line in re.findall(r"^    (?:\w+_limit|honor_labels): .*$|^  scrape_\w+: .*$", shipped, re.M):
        if line not in scrape:
            yield f"docker/prometheus.yml has not '{line.strip()}'"


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=30, check=False)
    return [] if done.returncode == 0 else [f"{command[0]}:\n{done.stdout}"]


def main():
    source = pathlib.Path(sys.argv[1])
    file, scrape_file = source / "docker/compose.yaml", source / "docker/prometheus.yml"
    text, scrape = file.read_text(), scrape_file.read_text()
    faults = [*check(source, text, scrape), *same_job(source, scrape),
              *run("promtool", "check", "config", scrape_file)]
    if shutil.which("docker-compose"):
        faults += run("docker-compose", "-f", file, "config", "--quiet")
    # The check itself: a file with mistakes is refused.
    for old, new in (("../configs/prometheus/rules", "../configs/none"), ("127.0.0.1:9090", "9090"),
                     (":v3.14.0", ":latest"), ('RANK: "2", L', 'RANK: "1", L'), (":ro", ""),
                     ("[prometheus]", "[nobody]"), ("  rank-3:\n", "  other:\n")):
        if not list(check(source, text.replace(old, new), scrape)):
            faults.append(f"{new or 'a writable mount'} in place of {old} was accepted")
    print("\n".join(faults) if faults else "compose.yaml: paths, ports, ranks and scraping are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
