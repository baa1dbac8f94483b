# syntax=docker/dockerfile:1
# distcore with every plugin, for CPUs: docker build -f contrib/docker/cpu.Dockerfile -t distcore:cpu .
FROM python:3.11-slim-bookworm AS built
# For core's compiled reader and Horovod; pinned apt versions would break with every Debian point release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ cmake make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
COPY core core
COPY toolkits toolkits
COPY src src
COPY pyproject.toml pyproject.toml
COPY README.md README.md
COPY plugins plugins
# The second index has torch without CUDA, some gigabytes smaller.
RUN python -m venv /opt/distcore \
    && /opt/distcore/bin/pip install --no-cache-dir --constraint constraints.txt \
       --extra-index-url https://download.pytorch.org/whl/cpu ./core ./toolkits/* ./plugins/* . "ray[default]" \
    && /opt/distcore/bin/distcore-horovod build --install --mpi no

FROM python:3.11-slim-bookworm
# wget: KubeRay's probes; rsync: `ray up`; openssh-client: horovodrun.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget rsync openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 --shell /bin/bash ray
COPY --from=built /opt/distcore /opt/distcore
ENV PATH=/opt/distcore/bin:$PATH
USER 1000
WORKDIR /home/ray
CMD ["distcore", "--help"]
