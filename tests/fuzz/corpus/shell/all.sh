#!/bin/bash
#SBATCH --nodes=4
A=${1:-8B} B="x $A" C=($A "y z") ; C+=(--d) ; : ${D:=7} ; export E=$((A * 2 ** 3 % 5 > 1 ? 1 : 0))
if [ -z "$F" ]; then F=1; elif [[ $A == 8* && ! ( -f x || $B =~ y ) ]]; then F="$F --f 1"; else exit 1; fi
case "$A" in 8B|"7B") G=1 ;; [a-z]?*) G=2 ;; *) G=3 ;; esac
f() { local H=$1; set -- "$@"; shift; return; }
f 1 ${C[@]} "${C[*]}" ${#C[@]} ${C[1]}
for i in 1 2; do ((I++)); read J; done
while [ $# -gt 0 ]; do shift; break; done
cat <<-END | tee x
	--num-layers 2
	END
(K=1; bash -c 'run --k $K'); { eval "run --l ${A:+2} ${B%x} $(ls) `pwd`"; } 2>&1 > log
run --a "$A" --b='$B' \
  --c "${C[@]}" ${D:-"8"} $'x' "a\"b" && ! false || run --e $E $F $G `# no` # --h
--m 1
