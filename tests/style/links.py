"""Every relative link and #anchor of the documents leads somewhere; paths in backticks in docs/extending.md and docs/architecture.md, and
pages of docs/ that sources, scripts and configurations name, exist."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md")] + sorted((ROOT / "docs").glob("*.md"))
FOLDERS = ("apps", "bench", "cmake", "configs", "containers", "data_tools", "docs", "examples", "include", "k8s", "pbs", "scripts", "slurm",
           "src", "tests")
PATHS = ("docs/extending.md", "docs/architecture.md")
ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".md", ".yaml", ".txt", ".cmake")
files = [f for folder in FOLDERS for f in (ROOT / folder).rglob("*") if f.is_file() and "__pycache__" not in f.parts]
names = {f.name for f in files} | {f.name for f in ROOT.iterdir()}


def prose(text):
    """The lines outside of code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    heads = re.findall(r"^#+ (.*)", prose(page.read_text()), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", head).lower()).replace(" ", "-") for head in heads}


def broken_links(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"there is no '{path}'"
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            yield f"'{link}': the page has no such heading"


def missing_paths(page):
    """A path counts from the root, from include/qft, src or docs; a name without a folder may be anywhere. Placeholders and endings are skipped."""
    for path in re.findall(r"`([\w.*/-]+)`", prose(page.read_text())):
        inside = path.split("/")[0] in FOLDERS and "/" in path
        if "NAME" in path or "*" in path or path.startswith(".") or not (inside or path.endswith(ENDINGS)):
            continue
        found = "/" not in path and path in names or any((ROOT / base / path).exists() for base in ("", "include/qft", "src", "docs"))
        if not found:
            yield f"there is no '{path}'"


problems = [(page, problem) for page in PAGES for problem in broken_links(page)]
problems += [(ROOT / page, problem) for page in PATHS for problem in missing_paths(ROOT / page)]
for file in files:
    if file.suffix in {*ENDINGS, ".sbatch", ".pbs", ".def"} and file.parent != ROOT / "docs":
        pages = re.findall(r"(?<![\w/])docs/\w+\.md", file.read_text(errors="replace"))
        problems += [(file, f"there is no '{page}'") for page in pages if not (ROOT / page).exists()]
for page, problem in problems:
    print(f"{page.relative_to(ROOT)}: {problem}")
sys.exit(bool(problems))
