"""Makes the wheel of smp_torch: what `pip install ./python` calls (PEP 517). Builds the module with
CMake, in build/wheel-<tag>, for the Python that pip runs in and the torch 2.11 that it has."""
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "smp_torch"


def torch_folder():
    # pip builds in an environment without the packages around it; -I looks past that.
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"
    origin = subprocess.run([sys.executable, "-I", "-c", code], check=True, text=True,
                            capture_output=True).stdout.strip()
    if not origin:
        raise SystemExit(f"smp_torch: {sys.executable} has no torch: pip install torch==2.11.0")
    return pathlib.Path(origin).parent


def build_module():
    folder = ROOT / "build" / f"wheel-{tag()}"
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DSMP_RUNTIME=OFF", "-DSMP_TESTS=OFF", f"-DSMP_PYTHON={sys.executable}",
                    f"-DSMP_TORCH_ROOT={torch_folder()}"], check=True)
    subprocess.run(["cmake", "--build", folder, "--target", "smp_torch"], check=True)
    return folder / "python" / NAME / "_backend.so"


def get_requires_for_build_wheel(config_settings=None):
    return []


def tag():
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"{python}-{python}-{platform}"


def metadata():
    """The name of the folder dist-info, and what is in it besides RECORD."""
    version = re.search(r"project\(smp VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    return f"{NAME}-{version}", {
        "METADATA": (f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n"
                     "Summary: The collectives of smp as a backend of torch.distributed\n"
                     "Requires-Dist: torch==2.11.*\n"),
        "WHEEL": (f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\n"
                  f"Tag: {tag()}\n"),
        "entry_points.txt": f"[torch.backends]\n{NAME} = {NAME}_autoload:register\n"}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name, files = metadata()
    folder = pathlib.Path(metadata_directory, f"{name}.dist-info")
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name, texts = metadata()
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted((HERE / NAME).glob("*.py"))}
    files[f"{NAME}_autoload.py"] = (HERE / f"{NAME}_autoload.py").read_bytes()
    files[f"{NAME}/_backend.so"] = build_module().read_bytes()
    for file, text in texts.items():
        files[f"{name}.dist-info/{file}"] = text.encode()
    record = ""
    for file, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{file},sha256={digest},{len(content)}\n"
    files[f"{name}.dist-info/RECORD"] = f"{record}{name}.dist-info/RECORD,,\n".encode()

    wheel = f"{name}-{tag()}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return wheel
