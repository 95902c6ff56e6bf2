#include "shell/shell_script.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "shell/shell_arithmetic.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::shell;
using namespace smp::text;

namespace {

// One word a line; of several commands, all.
std::string words_of(const std::string& script) {
  Diagnostics diagnostics;
  const int source = diagnostics.add_source("x.sh", script);
  const ShellScript read = read_shell_script(script, source, diagnostics);
  if (diagnostics.any()) return diagnostics.text();
  std::string out;
  for (const ShellLine& line : read.lines) {
    for (size_t i = 1; i < line.words.size(); ++i) {
      const ShellWord& word = line.words[i];
      out += word.text;
      if (word.unknown) out += fmt::format("<{}>", word.unknown->what);
      if (word.only_if)
        out += fmt::format(" if {}:{}", word.only_if->place.line, word.only_if->what);
      out += "\n";
    }
  }
  return out;
}

// What bash itself calls `torchrun` with.
std::string words_of_bash(const std::string& script) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("smp-shell-{}.sh", getpid())).string();
  std::ofstream(path) << "torchrun() { printf '%s\\n' \"$@\"; }\nexport -f torchrun\n" << script;
  FILE* pipe = popen(fmt::format("env -i /bin/bash --norc {} 2>/dev/null", path).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  std::array<char, 4096> buffer{};
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe))
    out.append(buffer.data(), got);
  pclose(pipe);
  std::filesystem::remove(path);
  return out;
}

}  // namespace

TEST_CASE("a script's command has the words that bash gives it") {
  const std::vector<std::string> scripts = {
      "A=2; torchrun --a $A --b \"$A\" --c '$A' --d \\$A --e ${A}x --f \"x${A}\"\n",
      "A='1 2'; torchrun --a $A --b \"$A\" --c x$A\n",
      "A=(--a 1 \"--b 2\" '--c 3 4'); torchrun ${A[@]} -- \"${A[@]}\" -- $A ${A[2]} ${#A[@]} "
      "\"${A[*]}\"\n",
      "A=(--a); A+=(--b \"x y\"); B=x; B+=y; torchrun \"${A[@]}\" --c $B\n",
      "torchrun --a ${NONE:-\"2\"} --b \"${NONE:-3}\" --c ${NONE:-'4 5'} --d ${NONE:-6 7} --e "
      "\"${NONE:-\"8 9\"}\"\n",
      "A=; B=1; torchrun --a ${A:-2} --b ${A-3}. --c ${B:+4} --d ${A:+5}. --e ${B:-6} --f ${C:=7} "
      "$C\n",
      "A=7; torchrun --a $((A * 3 / 2)) --b $(( ($A + 1) % 5 )) --c $((2**10)) --d $((-7/2)) --e "
      "$((A>3?1:0))\n",
      "A=010; torchrun --a $((A + 0x10)) --b $((A == 8 && A != 9))\n",
      "OLD=$IFS; IFS=,; A=1; IFS=$OLD; B='1 2'; torchrun --b $B\n",
      "f() { local IFS=,; A=12; torchrun --a $A; }; f; B='1 2'; torchrun --b $B\n",
      "IFS=$' \\t\\n'; B='1 2'; torchrun --b $B; IFS=,; unset IFS; torchrun --b $B\n",
      "A=$'a b\\n\\tc\\'d\\\\e'; torchrun --a \"$A\" --b $'x y' --c $'' --d $A\n",
      "IFS=$'\\n\\t'; A=/a,b/c; torchrun --a $A\n",
      "IFS=,; A=12; B=x,y; torchrun --a $A x,y \"$B z\"\n",
      "B='1 2'; export B; IFS=, bash -c 'torchrun --b $B'\n",
      "A=8B\nif [ $A = 7B ]; then X=1\nelif [[ $A == 8* ]]; then X=2\nelse X=3; fi\ntorchrun --x "
      "$X\n",
      "A=8; if [ $A -gt 4 ] && [ ! $A -eq 9 ]; then X=1; else X=2; fi; torchrun --x $X\n",
      "A=8; [ $A -lt 4 ] && X=1 || X=2; torchrun --x $X\n",
      "A=8; if test \"$A\" -ge 8 -a -n \"$A\"; then torchrun --x 1; else torchrun --x 2; fi\n",
      "A=8; if [[ ( $A -gt 4 || $A == x ) && -n $A && ! -z \"$A\" ]]; then torchrun --x 1; fi\n",
      "A=8; if ((A > 7)); then torchrun --x 1; else torchrun --x 2; fi\n",
      "A=x86; case $A in arm*|risc) X=1;; \"x*\") X=4 ;; x?6) X=2;; *) X=3;; esac; torchrun --x "
      "$X\n",
      "A='*'; case '*' in \"$A\") torchrun --x 1;; esac\n",
      "f() { local A=$1; B=$2; torchrun --n $# --all \"$@\"; }\nA=0; f 1 '2 3'; torchrun --a $A "
      "--b \"$B\"\n",
      "CMD=\"torchrun --a 1 --b '2 3'\"; $CMD; eval $CMD; eval \"$CMD\"\n",
      "export A=2; B=3; bash -c 'torchrun --a $A'; bash -c \"torchrun --b $B\"\n",
      "A=1; (A=2; torchrun --a $A); torchrun --a $A; { A=3; }; torchrun --a $A\n",
      "torchrun --a 1 \\\n  --b 2 `# no` \\\n  --c 3 2> /dev/null; torchrun --d 4 # --e 5\n",
      "A=(\n --a 1 # one\n # --b 2\n --c 3 \\\n #--d\n)\ntorchrun ${A[@]}\n",
      "A=\"--a 1 \\\n  --b 2 \\\n\n  --c 3\"; torchrun $A\n",
      "cat <<EOF > /dev/null\n--a $A 'x\nEOF\ntorchrun --b 1\ncat <<-'END' > "
      "/dev/null\n\tx\n\tEND\ntorchrun --c 2\n",
      "A=1\nB=$A\nA=2\nexport C=$B D=\"$A $B\"\nreadonly E=$D\ntorchrun --c $C --d \"$D\" --e $E\n",
      "set -- 1 '2 3'; torchrun --a $1 --b \"$2\" --n $#; shift; torchrun --a \"$1\" \"$@\"\n",
      "A=1; torchrun --a $A | cat; ! false && torchrun --b 2; true || torchrun --c 3; exit 0; "
      "torchrun --d 4\n",
      "A=\"x\"'y'z\\ w; torchrun --a \"$A\" --b \"a\\\"b\\$c\\d\" --c \"\" --d ''x --e a\"\"b\n",
      "GPUS_PER_NODE=8 NNODES=4\nWORLD=$(($GPUS_PER_NODE*$NNODES))\ntorchrun --nproc "
      "$GPUS_PER_NODE --w=$WORLD --r=\"$WORLD\"/2\n",
      "function g { torchrun --a $1; }; g 5; return_me() { return; torchrun --never 1; }; "
      "return_me; torchrun --b 6\n",
      "A=1; A=2 torchrun --a $A; export A; A=3 bash -c 'torchrun --b $A'; f() { torchrun --c $A; "
      "}; A=4 f; torchrun --d $A\n",
      "A=(1 2); A[1]=3; torchrun --x; B=1 A=$B eval 'torchrun --a $A'\n",
      "A=(); torchrun --a ${A[@]} \"${A[@]}\" --b \"$NOTHING\"x; unset A; torchrun --c ${A:-3}\n",
  };
  for (const std::string& script : scripts) {
    INFO(script);
    // What bash has from nowhere is empty; here it is a doubt.
    std::string ours = words_of(script);
    for (size_t at; (at = ours.find("<$NOTHING")) != std::string::npos;)
      ours.erase(at, ours.find('>', at) + 1 - at);
    CHECK(ours == words_of_bash(script));
  }
}

TEST_CASE(
    "what needs the environment, arguments or another program stays a doubt where it reaches a "
    "word") {
  CHECK(
      words_of("run --a $X --b \"$1\" --c $(ls -l) --d `ls` --e ${X%y} --f $((X + 1)) --g $?\n") ==
      "--a\n"
      "<$X, which this text does not set>\n"
      "--b\n"
      "<$1, an argument of the script>\n"
      "--c\n"
      "<$(ls -l), which smp does not run>\n"
      "--d\n"
      "<`ls`, which smp does not run>\n"
      "--e\n"
      "<${X%y}, which smp does not evaluate>\n"
      "--f\n"
      "<$X, which this text does not set>\n"
      "--g\n"
      "<$?, known only when the script runs>\n");
  CHECK(words_of("if [ -f x ]; then A=1; B=2; C=(--c 1); else A=1; B=3; fi\nrun --a $A --b $B "
                 "${C[@]}\n") ==
        "--a\n"
        "1\n"
        "--b\n"
        "2 if 1:[ -f x ], a test of files, which smp does not read\n"
        "3 if 1:[ -f x ], a test of files, which smp does not read\n"
        "--c if 1:[ -f x ], a test of files, which smp does not read\n"
        "1 if 1:[ -f x ], a test of files, which smp does not read\n");
  CHECK(words_of("if [ $X = 1 ]; then A=1; fi\nB=x$A\nrun --b $B\n") ==
        "--b\nx<$X, which this text does not set>\n");
  CHECK(
      words_of("A=1\n[ $X = 1 ] && exit 1\nif [ -n \"$Y\" ]; then A=2; exit 1; fi\nrun --a $A\n") ==
      "--a\n1\n");
  CHECK(
      words_of("A=\"--a 1\"\nif [ $X = 1 ]; then A=\"$A --b 2\"; fi\nrun $A --c 3\n") ==
      "--a\n1\n--b if 2:$X, which this text does not set\n2 if 2:$X, which this text does not set\n"
      "--c\n3\n");
  CHECK(words_of("A=1\nwhile true; do A=2; break; done\nrun --a $A\n") ==
        "--a\n<a result of the loop on line 2, which smp does not run>\n");
  CHECK(words_of("i=1\n((i++))\nread -r j\nrun --i $i --j $j\n") ==
        "--i\n<((i++)), which smp does not evaluate>\n--j\n<read -r j, which smp does not run>\n");
  CHECK(words_of("A=$A\nrun --a \"$A\" \"${B[@]}\" \"$@\"\n") ==
        "--a\n<$A, which this text does not set>\n<$B, which this text does not set>\n"
        "<$@, the script's arguments>\n");
  CHECK(words_of("if [ -z \"$A\" ]; then A=4; fi\n[ -n \"$B\" ] || B=5\nC=${C:-6}\nrun --a $A --b "
                 "$B --c $C\n") == "--a\n4\n--b\n5\n--c\n6\n");
  CHECK(words_of("if [ -z \"$A\" ]; then B=4; else B=$A; fi\nrun --b \"$B\"\n") ==
        "--b\n<$A, which this text does not set>\n");
  CHECK(words_of("if [ \"$A\" = x ]; then A=4; fi\nrun --a \"$A\"\n") ==
        "--a\n<$A, which this text does not set>\n");
  CHECK(words_of("A=1\nbash -c 'run --a $A'\n") ==
        "--a\n<$A, which this text sets but does not export>\n");
  CHECK(words_of("case $X in 1) A=1;; *) A=2;; esac\nrun --a \"$A\"\n") ==
        "--a\n<$X, which this text does not set>\n");
  CHECK(words_of("run --a $((1 / 0)) --b $((9223372036854775807 + 1))\n") ==
        "--a\n<$((1 / 0)), which smp does not evaluate>\n--b\n<$((9223372036854775807 + 1)), which "
        "smp does not evaluate>\n");
  CHECK(words_of("A=<path of the data>/x\nrun --a \"$A\" --b ${10}\n") ==
        "--a\n/x<<path of the data>, which is to be filled in>\n--b\n<${10}, an argument of the "
        "script>\n");
  CHECK(words_of("A=(1 2)\nunset 'A[0]'\nrun --a ${A[@]}\n") ==
        "--a\n<unset A[0], which smp does not evaluate>\n");
  CHECK(words_of("A=1\nssh host 'cd x && run --a $A'\n") ==
        "--a\n<$A, which this text sets but does not export>\n");
  CHECK(words_of("if [ -n \"$X\" ]; then set -- 2; fi\nrun --a \"$1\"\n") ==
        "--a\n<$1, an argument of the script>\n");
  CHECK(words_of("declare -A M=([a]=1)\nrun --a ${M[a]} --b ${M[@]}\n") ==
        "--a\n<${M[a]}, which smp does not evaluate>\n--b\n<declare -A M=, which smp does not "
        "evaluate>\n");
}

TEST_CASE("what is outside the subset is an error with its line") {
  CHECK(words_of("A=1\nA=\"x\nB=2\n").starts_with("x.sh:2:3: this \" is not closed"));
  CHECK(words_of("A=(1\n").starts_with("x.sh:1:3: this ( is not closed"));
  CHECK(words_of("if true; then\n echo\n")
            .starts_with("x.sh:3:1: expected 'fi' of this if, found the end"));
  CHECK(words_of("echo )\n").starts_with("x.sh:1:6: unexpected ')'"));
  CHECK(words_of("A=${X\n").starts_with("x.sh:1:3: this ${ is not closed"));
  CHECK(words_of("[ 1 = 1\n").starts_with("x.sh:1:1: ] is missing for this ["));
  CHECK(words_of("[[ 1 = 1\n").starts_with("x.sh:1:1: ]] is missing for this [["));
  CHECK(words_of("case x in a) echo;& b) echo;; esac\n")
            .starts_with("x.sh:1:18: ;& is not supported"));
  CHECK(words_of("run x \\\n # no \\\n --b\n")
            .starts_with("x.sh:3:2: a comment ended the continued command above"));
  CHECK(words_of("f() { f; }\nf\n").starts_with("x.sh:1:7: function calls nest too deeply"));
  CHECK(words_of("f() { A=1; }\nif [ -n \"$X\" ]; then\nf() { A=2; }\nfi\nf\n")
            .starts_with("x.sh:5:1: which function f this line calls depends on an unknown test"));
  std::string arms = "case $1 in\n";
  for (int i = 0; i < 100; ++i) arms += fmt::format("--o{0}) A=1; B{0}=2 ;;\n", i);
  CHECK(words_of(arms + "*) A=1 ;;\nesac\nrun --a $A --b \"$B7\"\n") ==
        "--a\n1\n--b\n<$1, an argument of the script>\n");
  std::string doubles = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 30; ++i) doubles += "A=$A$A\n";
  CHECK(words_of(doubles).find("too long to import") != std::string::npos);
}

TEST_CASE("a value whose words depend on an IFS that is not blanks is an error with its line") {
  const std::string why =
      "is split at an IFS other than blanks, which smp does not support: write the words";
  CHECK(words_of("IFS=,\nA=1,2\ntorchrun --a $A\n").starts_with("x.sh:3:14: $A " + why));
  CHECK(words_of("IFS=\nA='1 2'\ntorchrun --a $A\n").starts_with("x.sh:3:14: $A " + why));
  CHECK(words_of("IFS=$'\\n\\t'\nA='1 2'\ntorchrun --a ${A:-x}\n")
            .starts_with("x.sh:3:14: ${A:-x} " + why));
  CHECK(words_of("IFS=$1\nA=1,2\ntorchrun --a $A\n").starts_with("x.sh:3:14: $A " + why));
  CHECK(words_of("if [ $X = 1 ]; then IFS=:; fi\nA=1:2\ntorchrun --a $A\n")
            .starts_with("x.sh:3:14: $A " + why));
  CHECK(words_of("f() { local IFS=,; torchrun --a $A; }\nA=1,2\nf\n")
            .starts_with("x.sh:1:33: $A " + why));
  CHECK(words_of("IFS=,\nA=(1 2)\ntorchrun --a \"${A[*]}\"\n")
            .starts_with("x.sh:3:15: ${A[*]} is joined by an IFS other than blanks, which smp "
                         "does not support: write the joined word"));
}

TEST_CASE("sbatch's own lines set Slurm's variables") {
  CHECK(words_of(
            "#SBATCH --nodes=4 # four\n#SBATCH -N 4\n#SBATCH --gpus-per-node 8\n"
            "run --n $SLURM_NNODES --g $SLURM_GPUS_ON_NODE --x $((SLURM_JOB_NUM_NODES * 2))\n") ==
        "--n\n4\n--g\n8\n--x\n8\n");
}
