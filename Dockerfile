# edison in a container, from the wheel that `make wheel` or `make dist` put into dist:
#
#     docker build --tag edison-ci .
#     docker run --rm --volume "$PWD:/work" edison-ci run
#
# Packages are those of requirements/run.txt, by version and hash, as in the action. The base image is
# named by tag: docs/releasing.md says how it is pinned for a release.
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
COPY requirements/run.txt dist/edison_ci-*.whl /tmp/edison/
RUN python -m venv /opt/edison \
    && /opt/edison/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
    --require-hashes --no-deps --only-binary :all: --requirement /tmp/edison/run.txt \
    && /opt/edison/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
    --no-deps --no-index /tmp/edison/edison_ci-*.whl \
    && /opt/edison/bin/python -m pip check

FROM ${BASE}
# Git, because projects live in repositories; bubblewrap keeps code checks in.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 edison \
    && git config --system --add safe.directory /work
COPY --from=build /opt/edison /opt/edison
ENV PATH=/opt/edison/bin:$PATH
USER edison
WORKDIR /work
ENTRYPOINT ["edison"]
CMD ["--help"]
