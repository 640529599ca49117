"""Colors of all figures: Okabe and Ito's, which color-blind readers tell apart, and two more."""

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PINK = "#0072B2", "#D55E00", "#CC79A7"
GRAY, BROWN = "#7F7F7F", "#8C564B"
